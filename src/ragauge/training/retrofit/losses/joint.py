"""The loss of joint attention, with adapters of the projections that read a neighbour.

Sequence and neighbours are tokens of one pass. At each layer a neighbour attends to the sequence's first token and to
itself, and a token of the sequence to its past and to its own window's neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragauge.engines.decoder import Decoder
from ragauge.generation.reader import Tokens
from ragauge.generation.retrofit.adapters import Adapters
from ragauge.generation.retrofit.streams import attend, lower_triangle, packed
from ragauge.generation.windows import Windows
from ragauge.training.retrofit.losses.parts import Causal, Neighbours, rows, seen, token_nll


def nll(decoder: Decoder, adapters: Adapters, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
    """See `Trainable.nll`; neighbours are placed as by `JointAttention()`."""
    sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
    owners, texts = rows(neighbours)
    if not texts:
        return token_nll(decoder, decoder.run_layers(decoder.embed(sequence), Causal(decoder, len(sequence))), sequence)
    joint = _Joint(decoder, adapters, len(sequence), owners, texts, windows)
    x = decoder.run_layers(decoder.embed(torch.cat([sequence, joint.ids.flatten()])), joint)
    return token_nll(decoder, x[: len(sequence)], sequence)


class _Joint:
    """Self-attention of a sequence followed by rows of neighbours, as `Decoder.through` takes it."""

    def __init__(
        self,
        decoder: Decoder,
        adapters: Adapters,
        count: int,
        owners: Sequence[int],
        texts: Sequence[Tokens],
        windows: Windows,
    ) -> None:
        self.decoder, self.adapters, self.count = decoder, adapters, count
        self.ids, real, self.at = packed(texts, decoder.weights.embedding.device)
        self.shape, self.places = self.ids.shape, torch.arange(count, device=self.ids.device)
        self.turn = decoder.rotation(torch.cat([self.places, self.at.flatten()]))
        rows, width = self.shape
        causal, own = lower_triangle(1, count, real.device)[0], lower_triangle(rows, width, real.device)
        self.mask = torch.cat([seen(owners, real, count, windows), causal], 1)[None]
        self.row_mask = torch.cat([own.new_ones(rows, width, 1), own], 2)  # first the sequence's first token

    def __call__(self, index: int, normed: Tensor) -> Tensor:
        qkv, n = self.decoder.weights.layers[index].qkv(normed), self.count
        qkv = torch.cat([qkv[:n], qkv[n:] + self.adapters.added(index, normed[n:])])
        parts = self.decoder.split(index, qkv, self.turn)
        q, k, v = parts
        keys, values = (torch.cat([part[n:], part[:n]])[None] for part in (k, v))
        keys_at = torch.cat([self.at.flatten(), self.places])[None]
        own = attend(self.decoder, q[None, :n], keys, values, self.places[None], keys_at, self.mask)[0]
        rows_q, rows_k, rows_v = (part[n:].unflatten(0, self.shape) for part in parts)
        keys, values = (self._behind_the_first(p, rows) for p, rows in ((k, rows_k), (v, rows_v)))
        keys_at = torch.cat([torch.zeros_like(self.at[:, :1]), self.at], 1)
        theirs = attend(self.decoder, rows_q, keys, values, self.at, keys_at, self.row_mask)
        return torch.cat([own, theirs.flatten(0, 1)])

    @staticmethod
    def _behind_the_first(part: Tensor, rows: Tensor) -> Tensor:
        """Rows (row, token, kv_head, dim) behind the sequence's first token."""
        return torch.cat([part[:1].expand(len(rows), 1, -1, -1), rows], 1)
