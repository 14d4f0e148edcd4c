"""Both forms of RETRO-fit as one pass that gradients can flow through: a sequence with all windows' neighbours.

The same functions as `generation.retrofit.joint` and `cross_attention`, which write into a cache in place, window by
window; tests hold them together. The layers are the decoder's own, whatever its family.

Joint attention: sequence and neighbours are tokens of one pass. At each layer a neighbour attends to the sequence's
first token and to itself, and a token of the sequence to its past and to its own window's neighbours.
Cross-attention: the encoder reads the neighbours first; the sequence is the pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import Decoder
from ragauge.generation.reader import Tokens
from ragauge.generation.retrofit.adapters import Adapters
from ragauge.generation.retrofit.cross_weights import CrossWeights, encode
from ragauge.generation.retrofit.streams import attend, lower_triangle, packed
from ragauge.generation.windows import CHUNK, Windows

Neighbours = Sequence[Sequence[Tokens]]
"""Of each window."""


def joint_nll(decoder: Decoder, adapters: Adapters, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
    """Negative log-likelihood, in nats, of the tokens after the first query: (token - 64,), fp32.

    Args:
        ids: of the sequence.
        neighbours: of each window; where neighbours stand follows `JointAttention()`.
    """
    sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
    owners, texts = _rows(neighbours)
    if not texts:
        return _nll(decoder, decoder.through(decoder.embedded(sequence), _Causal(decoder, len(sequence))), sequence)
    joint = _Joint(decoder, adapters, len(sequence), owners, texts, windows)
    x = decoder.through(decoder.embedded(torch.cat([sequence, joint.ids.flatten()])), joint)
    return _nll(decoder, x[: len(sequence)], sequence)


def cross_nll(decoder: Decoder, weights: CrossWeights, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
    """As `joint_nll`, by gated cross-attention."""
    sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
    owners, texts = _rows(neighbours)
    beside = _Beside(decoder, weights, len(sequence), owners, texts, windows) if texts else None
    x = decoder.through(decoder.embedded(sequence), _Causal(decoder, len(sequence)), beside)
    return _nll(decoder, x, sequence)


def _rows(neighbours: Neighbours) -> tuple[list[int], list[Tokens]]:
    """(window, text) of every neighbour that has any."""
    rows = [(window, text) for window, found in enumerate(neighbours) for text in found if len(text)]
    return [window for window, _ in rows], [text for _, text in rows]


def _nll(decoder: Decoder, x: Tensor, sequence: Tensor) -> Tensor:
    """Of the tokens after the first query, by the last layer's states, in fp32."""
    logits = decoder.logits(decoder.weights.norm(x[CHUNK - 1 : -1]))
    return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")


def _seen(owners: Sequence[int], real: Tensor, count: int, windows: Windows) -> Tensor:
    """(token of the sequence, token of any neighbour): of its own window's neighbours, the real tokens.

    Args:
        owners: the window of each row of neighbours.
        real: (row, token).
        count: tokens of the sequence.
    """
    mine = torch.tensor([windows.of(place) for place in range(count)], device=real.device)
    owner = torch.tensor(list(owners), device=real.device)
    return ((mine[:, None] == owner)[:, :, None] & real).flatten(1)


class _Causal:
    """Self-attention of a sequence alone, as `Decoder.through` takes it."""

    def __init__(self, decoder: Decoder, count: int) -> None:
        self.decoder, self.places = decoder, torch.arange(count, device=decoder.weights.embedding.device)
        self.turn, self.mask = decoder.turn(self.places), lower_triangle(1, count, self.places.device)

    def __call__(self, index: int, normed: Tensor) -> Tensor:
        qkv = self.decoder.weights.layers[index].qkv(normed)
        q, k, v = (part[None] for part in self.decoder.split(index, qkv, self.turn))
        return attend(self.decoder, q, k, v, self.places[None], self.places[None], self.mask)[0]


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
        self.turn = decoder.turn(torch.cat([self.places, self.at.flatten()]))
        rows, width = self.shape
        causal, own = lower_triangle(1, count, real.device)[0], lower_triangle(rows, width, real.device)
        self.mask = torch.cat([_seen(owners, real, count, windows), causal], 1)[None]
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
        mask = _seen(owners, real, count, windows)[:, real.flatten()]
        self.asking = mask.any(1).nonzero()[:, 0]  # tokens with neighbours: a softmax over nothing has no gradient
        self.mask = mask[self.asking]

    def __call__(self, index: int, x: Tensor) -> Tensor | None:
        if index not in self.crosses:
            return None
        cross = self.crosses[index]
        memory = cross.memory(self.decoder, self.states, self.keys_at)
        added = cross.added(self.decoder, x[self.asking], self.asking, memory, self.mask)
        return torch.zeros_like(x).index_add(0, self.asking, added)
