"""Documents' embeddings, traced."""

from __future__ import annotations

import time

import numpy as np

from ragauge.cost.trace import Call
from ragauge.engines.protocol import Engine
from ragauge.prompts import Prompt


def embedded(engine: Engine, encoder: str, prompt: Prompt, *, offline: bool) -> np.ndarray:
    """Embeddings (document, dim) of a prompt's documents by an encoder, an asset's name or source."""
    from ragauge.rankers.dense import load_encoder

    started, model = time.perf_counter(), load_encoder(encoder)
    vectors = model.encode(prompt.document_texts)
    macs = sum(model.macs(tokens) for tokens in model.count_tokens(prompt.document_texts))
    engine.note(Call("rank", (), (), offline=offline, macs=macs, seconds=time.perf_counter() - started))
    return vectors
