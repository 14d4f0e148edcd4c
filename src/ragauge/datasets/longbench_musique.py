"""MuSiQue in LongBench: questions of two to four hops (Trivedi et al., TACL 2022)."""

from dataclasses import dataclass

from ragauge.datasets._longbench import PASSAGES_PROMPT, LongBench, archived


@dataclass(frozen=True)
class LongBenchMusique(LongBench):
    """Questions of several hops over Wikipedia passages that were joined to one text."""

    preamble = PASSAGES_PROMPT
    max_new_tokens = 32
    multi_hop = True
    counts = "longbench_musique"
    hub = archived("musique")
