"""Dense retrieval without an encoder's weights, for costs that are computed from shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.cost.cycles import CONTRIEVER_MACS
from ragauge.engines.protocol import SpanEngine
from ragauge.methods._ranked import Ranked
from ragauge.prompts import Prompt


class Contriever(Ranked):
    """The cost does not depend on which documents are kept, and encoding costs what the paper states."""

    def rank(self, engine: SpanEngine, state: Any, prompt: Prompt) -> np.ndarray:
        return -np.arange(len(prompt.documents))

    def query_macs(self, prompt: Prompt) -> int:
        return CONTRIEVER_MACS
