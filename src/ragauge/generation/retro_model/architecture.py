"""RETRO as the PipeRAG paper sizes it: a decoder with chunked cross-attention and a small encoder of neighbours.

Borgeaud et al., 2022, with the choices of Norlund et al., 2023, whose checkpoint PipeRAG uses: T5's RMS norms, gated
GELU, learned relative bias and unscaled attention. Layer 5 of the decoder (from 0) is the first with cross-attention;
its states after self-attention condition the encoder, whose output layers 5, 8 and 11 attend to.

`weights.py` gives it random weights, for latency, or those of a user's checkpoint; `reader.py` reads with it.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ragauge.generation.sizes import PAPER, Sizes

BUCKETS, MAX_DISTANCE = 32, 128  # of T5's relative bias


class Attention(nn.Module):
    """Multi-head attention without biases and without 1/sqrt(d), as in T5."""

    def __init__(self, width: int, heads: int, source: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(source or width, width, bias=False) for _ in range(2))

    def split(self, x: Tensor) -> Tensor:
        """(..., token, width) -> (..., head, token, dim)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def keys(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (..., head, token, dim) of (..., token, source width)."""
        return self.split(self.k(source)), self.split(self.v(source))

    def forward(self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., token, width) over keys and values (..., head, key, dim); bias (head, token, key)."""
        if bias is not None:
            bias = bias.expand(*x.shape[:-2], *bias.shape)
        mixed = F.scaled_dot_product_attention(self.split(self.q(x)), k, v, attn_mask=bias, scale=1.0)
        # a copy, even where this kernel's layout makes it needless: an exported graph's attention has another layout
        joined = mixed.transpose(-2, -3).clone(memory_format=torch.contiguous_format)
        return self.out(joined.flatten(-2))


class FeedForward(nn.Module):
    """Gated GELU, as in T5 1.1."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class Layer(nn.Module):
    """Self-attention, cross-attention where `source` is a width, feed-forward; norms before each."""

    def __init__(self, width: int, heads: int, ffn: int, source: int | None) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.attention, self.ffn = Attention(width, heads), FeedForward(width, ffn)
        self.cross_norm = nn.RMSNorm(width, 1e-6) if source else None
        self.cross = Attention(width, heads, source) if source else None


class RelativeBias(nn.Module):
    """T5's learned bias of a head by the distance of key and query, in buckets that grow with it."""

    def __init__(self, heads: int, bidirectional: bool) -> None:
        super().__init__()
        self.table, self.bidirectional = nn.Embedding(BUCKETS, heads), bidirectional

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(head, query, key) of the positions (query,) and (key,)."""
        return self.table(buckets(keys[None] - queries[:, None], self.bidirectional)).permute(2, 0, 1)


def buckets(distance: Tensor, bidirectional: bool) -> Tensor:
    """The bucket of each distance, key minus query (Raffel et al., 2020, section 2.1)."""
    count, first = BUCKETS, torch.zeros_like(distance)
    if bidirectional:
        count //= 2
        first, distance = (distance > 0).long() * count, distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    far = exact + (
        torch.log(distance.float().clamp(min=1) / exact) / math.log(MAX_DISTANCE / exact) * (count - exact)
    ).long().clamp(max=count - 1 - exact)
    return first + torch.where(distance < exact, distance, far)


class Encoder(nn.Module):
    """Neighbours to states that the decoder attends to, given the decoder's states of the query's tokens."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, heads = sizes.encoder_width, sizes.encoder_heads
        self.embedding = nn.Embedding(sizes.vocab, width)
        self.bias = RelativeBias(heads, bidirectional=True)
        self.layers = nn.ModuleList(
            Layer(width, heads, sizes.encoder_ffn, sizes.width if i in sizes.encoder_cross else None)
            for i in range(sizes.encoder_layers)
        )
        self.norm = nn.RMSNorm(width, 1e-6)

    @property
    def stack(self) -> list[Layer]:
        """The layers, typed."""
        return cast("list[Layer]", list(self.layers))

    def forward(self, ids: Tensor, states: Tensor) -> Tensor:
        """(neighbour, token) and the query's states (token, decoder width) -> (neighbour, token, encoder width)."""
        x, places = self.embedding(ids), torch.arange(ids.shape[1], device=ids.device)
        bias = self.bias(places, places)
        for layer in self.stack:
            y = layer.attention_norm(x)
            x = x + layer.attention(y, *layer.attention.keys(y), bias)
            if layer.cross is not None and layer.cross_norm is not None:
                k, v = (part.expand(ids.shape[0], -1, -1, -1) for part in layer.cross.keys(states))
                x = x + layer.cross(layer.cross_norm(x), k, v)
            x = x + layer.ffn(layer.ffn_norm(x))
        return self.norm(x)


class Retro(nn.Module):
    """The decoder and its encoder."""

    def __init__(self, sizes: Sizes = PAPER) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocab, sizes.width)
        self.bias = RelativeBias(sizes.heads, bidirectional=False)
        self.layers = nn.ModuleList(
            Layer(sizes.width, sizes.heads, sizes.ffn, sizes.encoder_width if i in sizes.cross else None)
            for i in range(sizes.layers)
        )
        self.norm = nn.RMSNorm(sizes.width, 1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.encoder = Encoder(sizes)

    @property
    def stack(self) -> list[Layer]:
        """The layers, typed."""
        return cast("list[Layer]", list(self.layers))
