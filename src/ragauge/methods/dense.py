"""Dense retrieval by a text encoder (Contriever in the paper), then a plain prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base.method import Answer
from ragauge.methods.base.ranked import ProjectedContriever, Ranked, RankedState, embed
from ragauge.methods.prompts import Prompt

if TYPE_CHECKING:
    from ragauge.methods.rankers.dense import Encoder


@dataclass(frozen=True)
class Dense(Ranked):
    """Dot products of embeddings. The documents' are computed before the query is known where there
    is path caching.
    """

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
        _ = self._model  # loaded here, not when the first question is timed
        return replace(state, vectors=self._embed(engine, prompt)) if self.path_caching else state

    def answer(
        self, engine: SpanEngine, state: RankedState, prompt: Prompt, limits: Limits
    ) -> Answer:
        if state.vectors is None:
            state = replace(state, vectors=self._embed(engine, prompt))
        return super().answer(engine, state, prompt, limits)

    def _embed(self, engine: SpanEngine, prompt: Prompt) -> np.ndarray:
        return embed(engine, self.encoder, prompt.document_texts, offline=self.path_caching)

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        assert state.vectors is not None
        return state.vectors @ self._model.embed([self.query_of(prompt)], query=True)[0]

    def query_macs(self, prompt: Prompt) -> int:
        return self._model.encoding_macs([self.query_of(prompt)], query=True)
