"""MuSiQue in LongBench: questions of two to four hops (Trivedi et al., TACL 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ragauge.datasets._longbench import PASSAGES_PROMPT, LongBench, archived


@dataclass(frozen=True)
class LongBenchMusique(LongBench):
    """Questions of several hops over Wikipedia passages that were joined to one text."""

    preamble: ClassVar[str] = PASSAGES_PROMPT
    max_new_tokens: ClassVar[int | None] = 32
    multi_hop: ClassVar[bool] = True
    counts: ClassVar[str | None] = "longbench_musique"
    hub: ClassVar[Mapping[str, Any]] = archived("musique")
