"""Our own single-hop questions over the Wikipedia sample: one gold passage among hard distractors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.datasets._base import SEARCH_RESULTS
from ragauge.datasets._wiki_questions import WikiDataset


@dataclass(frozen=True)
class WikiSingle(WikiDataset):
    """Questions in the manner of NQ-Open, at least one on every article of the sample, 20 passages each."""

    preamble: ClassVar[str] = SEARCH_RESULTS
    metrics: ClassVar[tuple[str, ...]] = ("best_subspan_em", "kept_gold_recall")
    questions: ClassVar[int | None] = 164
    counts: ClassVar[str | None] = "nq_open"
