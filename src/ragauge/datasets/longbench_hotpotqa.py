"""HotpotQA in LongBench: questions of two hops (Yang et al., EMNLP 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ragauge.datasets._longbench import PASSAGES_PROMPT, LongBench, archived


@dataclass(frozen=True)
class LongBenchHotpotQA(LongBench):
    """Questions of two hops over Wikipedia passages that were joined to one text."""

    preamble: ClassVar[str] = PASSAGES_PROMPT
    max_new_tokens: ClassVar[int | None] = 32
    multi_hop: ClassVar[bool] = True
    counts: ClassVar[str | None] = "longbench_hotpotqa"
    hub: ClassVar[Mapping[str, Any]] = archived("hotpotqa")
