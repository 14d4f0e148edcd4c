"""Pieces of a decoder's pass that gradients can flow through: nothing is written in place, no cache.

The layers are the decoder's own (`Decoder.through`); what is here is attention over keys that are given, for every
family: keys are rotated before, or ALiBi's bias follows from the positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import Decoder, biased_attention
from ragauge.engines.rope import alibi_bias
from ragauge.generation.reader import Tokens


def attend(
    decoder: Decoder, q: Tensor, k: Tensor, v: Tensor, at: Tensor, keys_at: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Attention of rows of queries over rows of keys: (row, token, width).

    Args:
        q: (row, token, head, dim).
        k, v: (row, key, kv_head, dim).
        at, keys_at: positions (row, token) and (row, key).
        mask: which keys are seen, (row, token, key); default: all.
    """
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    seen = None if mask is None else mask[:, None]
    if decoder.slopes is None:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=q.shape[1] != k.shape[1])
    else:
        bias = alibi_bias(decoder.slopes, at, keys_at)
        mixed = biased_attention(q, k, v, bias if seen is None else bias.masked_fill(~seen, float("-inf")))
    return mixed.transpose(1, 2).flatten(2)


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


def lower_triangle(rows: int, width: int, device: torch.device) -> Tensor:
    """The mask (row, token, token) of rows of tokens that see those before them and themselves."""
    return torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(rows, -1, -1)
