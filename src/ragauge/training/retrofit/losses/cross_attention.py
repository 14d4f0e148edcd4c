"""The loss of gated cross-attention, with its encoder of neighbours.

The encoder reads the neighbours first; then the sequence is one pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragauge.engines.decoder import Decoder
from ragauge.generation.reader import Tokens
from ragauge.generation.retrofit.cross_weights import CrossWeights, encode
from ragauge.generation.retrofit.streams import packed
from ragauge.generation.windows import Windows
from ragauge.training.retrofit.losses.parts import Causal, Neighbours, rows, seen, token_nll


def nll(decoder: Decoder, weights: CrossWeights, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
    """See `Trainable.nll`."""
    sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
    owners, texts = rows(neighbours)
    beside = _Beside(decoder, weights, len(sequence), owners, texts, windows) if texts else None
    x = decoder.run_layers(decoder.embed(sequence), Causal(decoder, len(sequence)), beside)
    return token_nll(decoder, x, sequence)


class _Beside:
    """Cross-attention of a sequence to its windows' neighbours, as `Decoder.through` takes it."""

    def __init__(
        self,
        decoder: Decoder,
        weights: CrossWeights,
        count: int,
        owners: Sequence[int],
        texts: Sequence[Tokens],
        windows: Windows,
    ) -> None:
        parts = weights.parts(decoder.weights.embedding.dtype)
        self.decoder, self.crosses = decoder, dict(zip(weights.layers, parts.cross, strict=True))
        ids, real, positions = packed(texts, decoder.weights.embedding.device)
        self.states = encode(decoder, parts.encoder, ids, positions)[real]
        first = torch.tensor([windows.first(window) for window in owners], device=ids.device)
        self.keys_at = (positions + first[:, None])[real]
        mask = seen(owners, real, count, windows)[:, real.flatten()]
        self.asking = mask.any(1).nonzero()[:, 0]  # tokens with neighbours: a softmax over nothing has no gradient
        self.mask = mask[self.asking]

    def __call__(self, index: int, x: Tensor) -> Tensor | None:
        if index not in self.crosses:
            return None
        cross = self.crosses[index]
        memory = cross.memory(self.decoder, self.states, self.keys_at)
        added = cross.added(self.decoder, x[self.asking], self.asking, memory, self.mask)
        return torch.zeros_like(x).index_add(0, self.asking, added)
