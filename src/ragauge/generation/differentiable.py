"""Both forms of RETRO-fit as one pass that gradients can flow through: a sequence with all windows' neighbours.

The same functions as `joint.JointReader` and `cross_attention.CrossReader`, which write into a cache in place, window
by window; tests hold them together.

Joint attention: sequence and neighbours are two streams through the decoder's layers. At each layer a neighbour attends
to the sequence's first token and to itself, and a token of the sequence to its past and to its own window's neighbours.
Cross-attention: the encoder reads the neighbours first; the sequence is one stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import Decoder
from ragauge.generation.adapters import Adapters
from ragauge.generation.cross_weights import CrossWeights, encode
from ragauge.generation.reader import Tokens
from ragauge.generation.streams import add_attention, add_mlp, attend, nll, packed, seen, split, turn
from ragauge.generation.windows import Windows

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
    x = _joint(decoder, adapters, sequence, owners, texts, windows) if texts else _alone(decoder, sequence)
    return nll(decoder, x, sequence)


def cross_nll(decoder: Decoder, weights: CrossWeights, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
    """As `joint_nll`, by gated cross-attention."""
    sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
    owners, texts = _rows(neighbours)
    x = _cross(decoder, weights, sequence, owners, texts, windows) if texts else _alone(decoder, sequence)
    return nll(decoder, x, sequence)


def _rows(neighbours: Neighbours) -> tuple[list[int], list[Tokens]]:
    """(window, text) of every neighbour that has any."""
    rows = [(window, text) for window, found in enumerate(neighbours) for text in found if len(text)]
    return [window for window, _ in rows], [text for _, text in rows]


def _alone(decoder: Decoder, sequence: Tensor) -> Tensor:
    """States (token, width) of the decoder alone."""
    places, causal = _places(sequence)
    own, x = turn(decoder, places), F.embedding(sequence, decoder.weights.embedding)
    for layer in decoder.weights.layers:
        q, k, v = split(decoder, layer.qkv(layer.attention_norm(x)), own)
        x = add_mlp(decoder, layer, add_attention(layer, x, attend(q, k, v, causal)))
    return x


def _joint(
    decoder: Decoder,
    adapters: Adapters,
    sequence: Tensor,
    owners: Sequence[int],
    texts: Sequence[Tokens],
    windows: Windows,
) -> Tensor:
    """States (token, width) of a sequence beside its neighbours."""
    weights, (places, causal) = decoder.weights, _places(sequence)
    ids, real, positions = packed(texts, sequence.device)
    own, theirs = turn(decoder, places), turn(decoder, positions.flatten())
    x, y = F.embedding(sequence, weights.embedding), F.embedding(ids, weights.embedding)  # y: (row, token, width)
    mask, inner = torch.cat([seen(owners, real, len(sequence), windows), causal], 1), _own(real)
    for index, layer in enumerate(weights.layers):
        q, k, v = split(decoder, layer.qkv(layer.attention_norm(x)), own)
        read = adapters.qkv(index, layer.qkv, layer.attention_norm(y)).flatten(0, 1)
        nq, nk, nv = split(decoder, read, theirs)
        mixed = attend(q, torch.cat([nk, k]), torch.cat([nv, v]), mask)
        y = add_mlp(decoder, layer, add_attention(layer, y, _attend_rows(nq, nk, nv, k[:1], v[:1], inner)))
        x = add_mlp(decoder, layer, add_attention(layer, x, mixed))
    return x


def _cross(
    decoder: Decoder,
    weights: CrossWeights,
    sequence: Tensor,
    owners: Sequence[int],
    texts: Sequence[Tokens],
    windows: Windows,
) -> Tensor:
    """States (token, width) of a sequence that attends to its neighbours' encoding in some layers."""
    parts, (places, causal) = weights.parts(decoder.weights.embedding.dtype), _places(sequence)
    ids, real, positions = packed(texts, sequence.device)
    states = encode(decoder, parts.encoder, ids, positions)[real]
    first = torch.tensor([windows.first(window) for window in owners], device=sequence.device)
    theirs, own = turn(decoder, (positions + first[:, None])[real]), turn(decoder, places)
    mask = seen(owners, real, len(sequence), windows)[:, real.flatten()]
    asking = mask.any(1).nonzero()[:, 0]  # tokens with neighbours: a softmax over nothing has no gradient
    asked_at, mask = (own[0][asking], own[1][asking]), mask[asking]
    crosses = dict(zip(weights.layers, parts.cross, strict=True))
    x = F.embedding(sequence, decoder.weights.embedding)
    for index, layer in enumerate(decoder.weights.layers):
        q, k, v = split(decoder, layer.qkv(layer.attention_norm(x)), own)
        x = add_attention(layer, x, attend(q, k, v, causal))
        if index in crosses:
            keys, values = crosses[index].keys_values(decoder, states, theirs)
            x = x.index_add(0, asking, crosses[index].added(decoder, x[asking], asked_at, keys, values, mask))
        x = add_mlp(decoder, layer, x)
    return x


def _places(sequence: Tensor) -> tuple[Tensor, Tensor]:
    """The places of a sequence's tokens, and which token sees which."""
    places = torch.arange(len(sequence), device=sequence.device)
    return places, places[None] <= places[:, None]


def _own(real: Tensor) -> Tensor:
    """(row, 1, token, 1 + token): the sequence's first token, and the row's own tokens up to each."""
    rows, width = real.shape
    causal = torch.ones(width, width, dtype=torch.bool, device=real.device).tril()
    first = torch.ones(rows, width, 1, dtype=torch.bool, device=real.device)
    return torch.cat([first, causal.expand(rows, -1, -1)], 2)[:, None]


def _attend_rows(q: Tensor, k: Tensor, v: Tensor, first_k: Tensor, first_v: Tensor, mask: Tensor) -> Tensor:
    """As `attend`, each row (row * token packed) over the sequence's first token and itself: (row, token, ...)."""
    rows, _, width, _ = mask.shape

    def keys(own: Tensor, first: Tensor) -> Tensor:
        per_row = own.view(rows, width, *own.shape[1:])
        return torch.cat([first.expand(rows, 1, -1, -1), per_row], 1).transpose(1, 2)

    queries = q.view(rows, width, *q.shape[1:]).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(queries, keys(k, first_k), keys(v, first_v), attn_mask=mask, enable_gqa=True)
    return mixed.transpose(1, 2).flatten(2)
