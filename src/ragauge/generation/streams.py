"""Pieces of a Llama-family decoder's pass that gradients can flow through: nothing is written in place, no cache.

A stream is a sequence's states (token, width); neighbours are rows of one more dimension, padded at their ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import ACTIVATIONS, Decoder, Layer
from ragauge.engines.rope import rotate, rotation
from ragauge.errors import UnsupportedError
from ragauge.generation.reader import Tokens
from ragauge.generation.windows import CHUNK, Windows

Turn = tuple[Tensor, Tensor]


def check(decoder: Decoder) -> None:
    """Raise UnsupportedError for a decoder that is not of the Llama family, which alone is trained here."""
    if decoder.shape.family != "llama":
        raise UnsupportedError(f"RETRO-fit training: a Llama-family decoder is needed, not {decoder.shape.family}")


def turn(decoder: Decoder, positions: Tensor) -> Turn:
    """The rotation of tokens at these positions (token,), in the decoder's type."""
    shape, dtype = decoder.shape, decoder.weights.embedding.dtype
    cos, sin = rotation(positions / shape.rope_scale, shape.head_dim, shape.rope_theta)
    return cos.to(dtype), sin.to(dtype)


def split(decoder: Decoder, qkv: Tensor, turned_by: Turn) -> tuple[Tensor, Tensor, Tensor]:
    """Packed (token, rows) -> queries, keys, values (token, head, dim), rotated."""
    shape = decoder.shape
    heads, kv = shape.heads[0], shape.kv_heads[0]
    parts = qkv.view(len(qkv), heads + 2 * kv, shape.head_dim)
    turned = rotate(parts[:, : heads + kv], *turned_by)
    return turned[:, :heads], turned[:, heads:], parts[:, heads + kv :]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """(token, head, dim) over keys (key, kv_head, dim) under (token, key); without a mask, all -> (token, width)."""
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    given = None if mask is None else mask[None, None]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=given, enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1)


def add_attention(layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
    """States after a layer's attention, which gave `mixed` (..., head * dim)."""
    return x + F.linear(mixed, layer.out.weight, layer.out.bias)


def add_mlp(decoder: Decoder, layer: Layer, x: Tensor) -> Tensor:
    """States after a layer's gated MLP."""
    gate, value = F.linear(layer.mlp_norm(x), layer.up.weight, layer.up.bias).chunk(2, -1)
    inner = ACTIVATIONS[decoder.shape.activation](gate) * value
    return x + F.linear(inner, layer.down.weight, layer.down.bias)


def packed(texts: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
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


def seen(owners: Sequence[int], real: Tensor, count: int, windows: Windows) -> Tensor:
    """(token of the sequence, token of any neighbour): of its own window's neighbours, the real tokens.

    Args:
        owners: the window of each row of neighbours.
        real: (row, token).
        count: tokens of the sequence.
    """
    mine = torch.tensor([windows.of(place) for place in range(count)], device=real.device)
    owner = torch.tensor(list(owners), device=real.device)
    return ((mine[:, None] == owner)[:, :, None] & real).flatten(1)


def nll(decoder: Decoder, x: Tensor, sequence: Tensor) -> Tensor:
    """Negative log-likelihood, in nats, of the tokens after the first query, by a stream's last states: (token - 64,).

    In fp32.
    """
    logits = F.linear(decoder.weights.norm(x)[CHUNK - 1 : -1], decoder.weights.head)
    return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")
