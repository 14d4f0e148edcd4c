"""HotpotQA in LongBench: questions of two hops (Yang et al., EMNLP 2018)."""

from dataclasses import dataclass

from ragauge.datasets._longbench import PASSAGES_PROMPT, LongBench, archived


@dataclass(frozen=True)
class LongBenchHotpotQA(LongBench):
    """Questions of two hops over Wikipedia passages that were joined to one text."""

    preamble = PASSAGES_PROMPT
    max_new_tokens = 32
    multi_hop = True
    counts = "longbench_hotpotqa"
    hub = archived("hotpotqa")
