"""Joint attention as one pass that gradients can flow through: a sequence with the neighbours of all its windows.

The same function as `joint.JointReader`, which writes into a cache in place, window by window; a test holds the two
together. Sequence and neighbours are two streams through the decoder's layers. At each layer a neighbour attends to the
sequence's first token and to itself, and a token of the sequence to its past and to its own window's neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.errors import UnsupportedError
from ragauge.lm.decoder import ACTIVATIONS, Decoder, Layer
from ragauge.lm.rope import rotate, rotation
from ragauge.retro.adapters import Adapters
from ragauge.retro.reader import Tokens
from ragauge.retro.windows import CHUNK, Windows

Turn = tuple[Tensor, Tensor]


def check(decoder: Decoder) -> None:
    """Raise UnsupportedError for a decoder that is not of the Llama family, which alone is trained here."""
    if decoder.shape.family != "llama":
        raise UnsupportedError(
            f"training of joint attention: a Llama-family decoder is needed, not {decoder.shape.family}"
        )


def joint_nll(
    decoder: Decoder, adapters: Adapters, ids: Tokens, neighbours: Sequence[Sequence[Tokens]], windows: Windows
) -> Tensor:
    """Negative log-likelihood, in nats, of the tokens after the first query: (token - 64,), fp32.

    Args:
        ids: of the sequence.
        neighbours: of each window; where neighbours stand follows `JointAttention()`.
    """
    device = decoder.weights.embedding.device
    rows = [(window, list(text)) for window, found in enumerate(neighbours) for text in found if len(text)]
    sequence = torch.tensor(list(ids), device=device)
    hidden = _hidden(decoder, adapters, sequence, rows, windows)
    logits = F.linear(hidden[CHUNK - 1 : -1], decoder.weights.head)
    return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")


def _hidden(
    decoder: Decoder, adapters: Adapters, sequence: Tensor, rows: Sequence[tuple[int, list[int]]], windows: Windows
) -> Tensor:
    """Normed states of the sequence's tokens (token, width)."""
    weights, count = decoder.weights, len(sequence)
    places = torch.arange(count, device=sequence.device)
    turn = _turn(decoder, places)
    causal = places[None] <= places[:, None]
    x = F.embedding(sequence, weights.embedding)
    if not rows:
        for layer in weights.layers:
            q, k, v = _split(decoder, layer.qkv(layer.attention_norm(x)), turn)
            x = _after(decoder, layer, x, _attend(q, k, v, causal))
        return weights.norm(x)
    ids, real, other_turn = _packed(decoder, rows, sequence.device)
    y = F.embedding(ids, weights.embedding)  # (row, token, width)
    seen = torch.cat([_seen(rows, real, count, windows), causal], 1)
    inner = _own(real)
    for index, layer in enumerate(weights.layers):
        q, k, v = _split(decoder, layer.qkv(layer.attention_norm(x)), turn)
        theirs = adapters.qkv(index, layer.qkv, layer.attention_norm(y)).flatten(0, 1)
        nq, nk, nv = _split(decoder, theirs, other_turn)
        mixed = _attend(q, torch.cat([nk, k]), torch.cat([nv, v]), seen)
        y = _after(decoder, layer, y, _attend_rows(nq, nk, nv, k[:1], v[:1], inner))
        x = _after(decoder, layer, x, mixed)
    return weights.norm(x)


def _packed(
    decoder: Decoder, rows: Sequence[tuple[int, list[int]]], device: torch.device
) -> tuple[Tensor, Tensor, Turn]:
    """Neighbours padded at their end: ids and which are real (row, token), and the rotation of all of them."""
    width = max(len(text) for _, text in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    positions = torch.zeros(len(rows), width)
    for row, (_, text) in enumerate(rows):
        ids[row, : len(text)] = torch.tensor(text)
        real[row, : len(text)] = True
        positions[row] = torch.arange(width) - len(text)
    return ids.to(device), real.to(device), _turn(decoder, positions.flatten().to(device))


def _seen(rows: Sequence[tuple[int, list[int]]], real: Tensor, count: int, windows: Windows) -> Tensor:
    """(sequence token, neighbour token): of its own window's neighbours, the real ones."""
    mine = torch.tensor([windows.of(place) for place in range(count)], device=real.device)
    owner = torch.tensor([window for window, _ in rows], device=real.device)
    return ((mine[:, None] == owner)[:, :, None] & real).flatten(1)


def _own(real: Tensor) -> Tensor:
    """(row, 1, token, 1 + token): the sequence's first token, and the row's own tokens up to each."""
    rows, width = real.shape
    causal = torch.ones(width, width, dtype=torch.bool, device=real.device).tril()
    first = torch.ones(rows, width, 1, dtype=torch.bool, device=real.device)
    return torch.cat([first, causal.expand(rows, -1, -1)], 2)[:, None]


def _turn(decoder: Decoder, positions: Tensor) -> Turn:
    shape, dtype = decoder.shape, decoder.weights.embedding.dtype
    cos, sin = rotation(positions / shape.rope_scale, shape.head_dim, shape.rope_theta)
    return cos.to(dtype), sin.to(dtype)


def _split(decoder: Decoder, qkv: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
    """Packed (token, rows) -> queries, keys, values (token, head, dim), rotated."""
    shape = decoder.shape
    heads, kv = shape.heads[0], shape.kv_heads[0]
    parts = qkv.view(len(qkv), heads + 2 * kv, shape.head_dim)
    turned = rotate(parts[:, : heads + kv], *turn)
    return turned[:, :heads], turned[:, heads:], parts[:, heads + kv :]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """(token, head, dim) over keys (key, kv_head, dim) under (token, key) -> (token, head * dim)."""
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, None], enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1)


def _attend_rows(q: Tensor, k: Tensor, v: Tensor, first_k: Tensor, first_v: Tensor, mask: Tensor) -> Tensor:
    """As `_attend`, each row (row * token packed) over the sequence's first token and itself: (row, token, ...)."""
    rows, _, width, _ = mask.shape

    def keys(own: Tensor, first: Tensor) -> Tensor:
        per_row = own.view(rows, width, *own.shape[1:])
        return torch.cat([first.expand(rows, 1, -1, -1), per_row], 1).transpose(1, 2)

    queries = q.view(rows, width, *q.shape[1:]).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(queries, keys(k, first_k), keys(v, first_v), attn_mask=mask, enable_gqa=True)
    return mixed.transpose(1, 2).flatten(2)


def _after(decoder: Decoder, layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
    """The rest of a layer: output projection and gated MLP, both with their residuals."""
    x = x + F.linear(mixed, layer.out.weight, layer.out.bias)
    gate, value = F.linear(layer.mlp_norm(x), layer.up.weight, layer.up.bias).chunk(2, -1)
    inner = ACTIVATIONS[decoder.shape.activation](gate) * value
    return x + F.linear(inner, layer.down.weight, layer.down.bias)
