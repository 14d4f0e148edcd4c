"""TF-IDF retrieval, then a plain prompt."""

from dataclasses import dataclass

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.ranked import Ranked, RankedState
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class TFIDF(Ranked):
    """TF-IDF cosine, fitted on the question's own documents."""

    library = "sklearn.feature_extraction.text"

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        from ragauge.methods.rankers.tfidf import rank

        return rank(self.query_of(prompt), prompt.document_texts)
