"""Dense retrieval by a text encoder (Contriever in the paper), then a plain prompt."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ragauge.cost.trace import Call
from ragauge.lm import LM
from ragauge.methods._ranked import Ranked, RankedState
from ragauge.prompts import Prompt


@dataclass(frozen=True)
class Dense(Ranked):
    """Dot products of embeddings. The documents' are computed before the query is known, the query's after."""

    encoder: str = "minilm"  # an asset's name or source: "minilm", "contriever", "path:/folder"

    def prepare(self, lm: LM, prompt: Prompt) -> RankedState:
        from ragauge.rankers.dense import load_encoder

        state, model = super().prepare(lm, prompt), load_encoder(self.encoder)
        started = time.perf_counter()
        state.vectors = model.encode(prompt.document_texts)
        macs = sum(model.macs(tokens) for tokens in model.count_tokens(prompt.document_texts))
        seconds = time.perf_counter() - started
        lm.note(Call("rank", (), (), offline=self.path_caching, macs=macs, seconds=seconds))
        return state

    def rank(self, lm: LM, state: RankedState, prompt: Prompt) -> np.ndarray:
        from ragauge.rankers.dense import load_encoder

        vector: np.ndarray = load_encoder(self.encoder).encode([prompt.question])[0]
        assert state.vectors is not None
        return state.vectors @ vector

    def query_macs(self, prompt: Prompt) -> int:
        from ragauge.rankers.dense import load_encoder

        model = load_encoder(self.encoder)
        return sum(model.macs(tokens) for tokens in model.count_tokens([prompt.question]))
