"""BM25 retrieval, then a plain prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods._ranked import Ranked, RankedState
from ragauge.prompts import Prompt


@dataclass(frozen=True)
class BM25(Ranked):
    """Okapi BM25 over the question's own documents."""

    library: ClassVar[str | None] = "bm25s"

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        from ragauge.rankers.bm25 import rank

        return rank(prompt.question, prompt.document_texts)
