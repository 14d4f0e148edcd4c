"""The shortest documents, in a plain prompt: a control of rankers."""

from dataclasses import dataclass

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.ranked import Ranked, RankedState
from ragauge.methods.prompts import Prompt
from ragauge.methods.rankers.shortest import rank


@dataclass(frozen=True)
class Shortest(Ranked):
    """Keep the `top_k` documents with the fewest words.

    A ranker that does not beat it has found a property of the data set: the gold document of some
    files is shorter than its distractors.
    """

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        return rank(self.query_of(prompt), prompt.document_texts)
