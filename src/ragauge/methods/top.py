"""The retriever's own order: its first documents, in a plain prompt."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.ranked import Ranked
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class Top(Ranked):
    """Keep the first `top_k` documents as retrieval ordered them, fused and read again by a
    reranker where it was so.

    What most deployments do. Nothing is ranked anew, so that the ranking costs nothing here; data
    sets that do not come from a retriever give their documents in an order of their own.
    """

    # a server that retrieves from a corpus has not read the best document before
    path_caching: bool = False

    def rank(self, engine: SpanEngine, state: Any, prompt: Prompt) -> np.ndarray:
        return -np.arange(len(prompt.documents))
