"""Differentiable pieces of a decoder's pass: nothing is written in place, no cache.

The layers are the decoder's own (`Decoder.run_layers`); here is attention over given keys, for every family: keys are
rotated before, or ALiBi's bias follows from the positions. Tests compare these passes with reading window by window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import Decoder, biased_attention
from ragauge.engines.rope import alibi_bias
from ragauge.generation.reader import Tokens
from ragauge.generation.windows import CHUNK, Windows

Neighbours = Sequence[Sequence[Tokens]]
"""Texts of the neighbours of each window."""


def attend(
    decoder: Decoder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    key_positions: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention of rows of queries over rows of keys: (row, token, width).

    Args:
        q: (row, token, head, dim).
        k, v: (row, key, kv_head, dim).
        positions, key_positions: (row, token) and (row, key).
        mask: which keys are visible, (row, token, key); default: all.
    """
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    visible = None if mask is None else mask[:, None]
    if decoder.slopes is None:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=q.shape[1] != k.shape[1])
    else:
        bias = alibi_bias(decoder.slopes, positions, key_positions)
        mixed = biased_attention(q, k, v, bias if visible is None else bias.masked_fill(~visible, float("-inf")))
    return mixed.transpose(1, 2).flatten(2)


def causal_mask(rows: int, width: int, device: torch.device) -> Tensor:
    """(row, token, token): a token sees those before it and itself."""
    return torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(rows, -1, -1)


class CausalAttention:
    """Self-attention of a sequence alone, as `Decoder.run_layers` takes it."""

    def __init__(self, decoder: Decoder, count: int) -> None:
        self.decoder, self.positions = decoder, torch.arange(count, device=decoder.weights.embedding.device)
        self.rotation, self.mask = decoder.rotation(self.positions), causal_mask(1, count, self.positions.device)

    def __call__(self, index: int, normed: Tensor) -> Tensor:
        qkv = self.decoder.weights.layers[index].qkv(normed)
        q, k, v = (part[None] for part in self.decoder.split(index, qkv, self.rotation))
        return attend(self.decoder, q, k, v, self.positions[None], self.positions[None], self.mask)[0]


def pad(texts: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours as rows: ids, which of them are real, and positions that end before 0; each (row, token)."""
    width = max(map(len, texts))
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    real = torch.zeros(len(texts), width, dtype=torch.bool)
    positions = torch.zeros(len(texts), width)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(list(text))
        real[row, : len(text)] = True
        positions[row] = torch.arange(width) - len(text)
    return ids.to(device), real.to(device), positions.to(device)


def by_row(neighbours: Neighbours) -> tuple[list[int], list[Tokens]]:
    """(window, text) of every neighbour that has text."""
    read = [(window, text) for window, found in enumerate(neighbours) for text in found if len(text)]
    return [window for window, _ in read], [text for _, text in read]


def neighbour_mask(owners: Sequence[int], real: Tensor, count: int, windows: Windows) -> Tensor:
    """(token of the sequence, token of any neighbour): True for real tokens of its own window's neighbours.

    Args:
        owners: the window of each row of neighbours.
        real: (row, token).
        count: tokens of the sequence.
    """
    own = torch.tensor([windows.of(place) for place in range(count)], device=real.device)
    owner = torch.tensor(list(owners), device=real.device)
    return ((own[:, None] == owner)[:, :, None] & real).flatten(1)


def scored_nll(decoder: Decoder, x: Tensor, sequence: Tensor) -> Tensor:
    """Negative log-likelihood of the tokens after the first query, from the last layer's states (token, width)."""
    logits = decoder.logits(decoder.weights.norm(x[CHUNK - 1 : -1]))
    return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")
