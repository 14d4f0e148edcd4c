"""Dense retrieval by a text encoder (Contriever in the paper), then a plain prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.ranked import ProjectedContriever, Ranked, RankedState, embed
from ragauge.methods.prompts import Prompt

if TYPE_CHECKING:
    from ragauge.methods.rankers.dense import Encoder


@dataclass(frozen=True)
class Dense(Ranked):
    """Dot products of embeddings. The documents' are those of an index, which is made once."""

    encoder: str = "minilm"  # an asset's name or source: "minilm", "contriever", "path:/folder"

    def without_encoder(self) -> Ranked:
        """Return the same with the paper's cost of encoding, and no weights."""
        return ProjectedContriever(self.top_k, self.path_caching)

    def assets(self) -> tuple[str, ...]:
        return (self.encoder,)

    @property
    def _model(self) -> Encoder:
        from ragauge.methods.rankers.dense import load_encoder

        return load_encoder(self.encoder)

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> RankedState:
        state = super().prepare(engine, prompt)
        vectors = embed(engine, self.encoder, prompt.document_texts, offline=True)
        return replace(state, vectors=vectors)

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        assert state.vectors is not None
        return state.vectors @ self._model.embed([self.query_of(prompt)], query=True)[0]

    def query_macs(self, prompt: Prompt) -> int:
        return self._model.encoding_macs([self.query_of(prompt)], query=True)
