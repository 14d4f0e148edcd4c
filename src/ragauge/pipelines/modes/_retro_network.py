"""RETRO as the PipeRAG paper runs it: a decoder with chunked cross-attention and a small encoder of
neighbours.

Borgeaud et al., 2022, as Norlund et al., 2023, built it, whose checkpoint PipeRAG uses: RMS norms,
gated GELU, unscaled attention, and in each attention a learned bias by the distance of key and
query, its own for every distance up to a bound. Layer 5 of the decoder (from 0) is the first with
cross-attention; its states after self-attention condition the encoder, whose output layers 5, 8 and
11 attend to. What distances count from:

- self-attention: the tokens' places in their sequence or neighbour;
- the encoder's cross-attention: the place in the neighbour, and the place in the query's 64 tokens;
- the decoder's: the place behind the query's last token, which is 0, and the place in the
  neighbours laid end to end, 128 places each, even if one is shorter.

`_retro.py` gives it weights and reads with it.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ragauge.pipelines.sizes import Sizes


class RelativeBias(nn.Module):
    """A learned bias of each head by the distance of key and query, clamped to what there are
    entries for.
    """

    def __init__(self, heads: int, count: int, bidirectional: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(count, heads)
        # key behind the query; the rest lies before it
        self.furthest = count // 2 if bidirectional else 0
        self.nearest = self.furthest - count + 1

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(head, query, key) of the positions (query,) and (key,)."""
        distance = keys[None] - queries[:, None]
        rows = distance.clamp(self.nearest, self.furthest) - self.nearest
        return self.table(rows).permute(2, 0, 1)


class RetroAttention(nn.Module):
    """Multi-head attention with a relative bias, without other biases and without 1/sqrt(d)."""

    def __init__(
        self, width: int, heads: int, buckets: int, bidirectional: bool, source: int | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(source or width, width, bias=False) for _ in range(2))
        self.bias = RelativeBias(heads, buckets, bidirectional)

    def split(self, x: Tensor) -> Tensor:
        """(..., token, width) -> (..., head, token, dim)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def keys(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (..., head, token, dim) of (..., token, source width)."""
        return self.split(self.k(source)), self.split(self.v(source))

    def forward(self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """(..., token, width) over keys and values (..., head, key, dim); bias (head, token, key)."""
        bias = bias.expand(*x.shape[:-2], *bias.shape)
        mixed = F.scaled_dot_product_attention(
            self.split(self.q(x)), k, v, attn_mask=bias, scale=1.0
        )
        # a copy, even where this kernel's layout makes it needless: an exported graph's attention
        # has another layout
        joined = mixed.transpose(-2, -3).clone(memory_format=torch.contiguous_format)
        return self.out(joined.flatten(-2))


class RMSNorm(nn.Module):
    """Root mean square norm whose small number is added to the root, not to the mean under it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        root = x.float().square().mean(-1, keepdim=True).sqrt() + 1e-8
        return self.weight * (x.float() / root).to(x.dtype)


class FeedForward(nn.Module):
    """Gated GELU, as in T5 1.1."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class RetroLayer(nn.Module):
    """Self-attention, which looks back alone if `causal`, cross-attention where `source` is a
    width, feed-forward. A norm before each; `buckets` are the entries of the relative bias in
    self-attention and in cross-attention.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        ffn: int,
        source: int | None,
        buckets: tuple[int, int],
        causal: bool,
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.ffn_norm = RMSNorm(width)
        self.attention = RetroAttention(width, heads, buckets[0], not causal)
        self.ffn = FeedForward(width, ffn)
        self.cross_norm = RMSNorm(width) if source else None
        self.cross = RetroAttention(width, heads, buckets[1], True, source) if source else None


class RetroEncoder(nn.Module):
    """Neighbours to states that the decoder attends to, given the decoder's states of the query's
    tokens.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.encoder_width
        heads = sizes.encoder_heads
        self.embedding = nn.Embedding(sizes.vocab, width)
        buckets = sizes.encoder_buckets, sizes.encoder_cross_buckets
        sources = [
            sizes.width if i in sizes.encoder_cross else None for i in range(sizes.encoder_layers)
        ]
        self.layers: Sequence[RetroLayer] = nn.ModuleList(  # type: ignore[assignment]
            RetroLayer(width, heads, sizes.encoder_ffn, source, buckets, causal=False)
            for source in sources
        )

    def forward(self, ids: Tensor, states: Tensor) -> Tensor:
        """(neighbour, token) and the query's states (token, decoder width) -> (neighbour, token,
        encoder width).
        """
        x = self.embedding(ids)
        positions = torch.arange(ids.shape[1], device=ids.device)
        queries = torch.arange(states.shape[0], device=ids.device)
        for layer in self.layers:
            y = layer.attention_norm(x)
            x = x + layer.attention(
                y, *layer.attention.keys(y), layer.attention.bias(positions, positions)
            )
            if layer.cross is not None and layer.cross_norm is not None:
                k, v = (part.expand(ids.shape[0], -1, -1, -1) for part in layer.cross.keys(states))
                x = x + layer.cross(layer.cross_norm(x), k, v, layer.cross.bias(positions, queries))
            x = x + layer.ffn(layer.ffn_norm(x))
        return x


class RetroNetwork(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocab, sizes.width)
        buckets = sizes.buckets, sizes.cross_buckets
        sources = [sizes.encoder_width if i in sizes.cross else None for i in range(sizes.layers)]
        self.layers: Sequence[RetroLayer] = nn.ModuleList(  # type: ignore[assignment]
            RetroLayer(sizes.width, sizes.heads, sizes.ffn, source, buckets, causal=True)
            for source in sources
        )
        self.norm = RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.encoder = RetroEncoder(sizes)
