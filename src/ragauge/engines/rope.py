"""Position encodings at real-valued positions: rotary embedding and ALiBi."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rotation(positions: Tensor, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines (token, 1, dim) of the rotary angles of real positions (token,), in fp32.

    Su et al. 2021, eq. 34, in the half-split order of the Llama checkpoints. The sines of the first half are
    negated, so that rotating is `x * cos + swapped_halves(x) * sin`.
    """
    inverse = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device) / dim)
    angle = positions.float()[:, None] * inverse[None]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (token, head, dim) by the token's angles."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def alibi_slopes(heads: int, bias_max: float = 8.0) -> tuple[float, ...]:
    """ALiBi's slope of each head (Press et al. 2022): a geometric series, interleaved where heads is no power of 2."""
    power = 2 ** math.ceil(math.log2(heads))
    slopes = [2.0 ** -(bias_max * (i + 1) / power) for i in range(power)]
    if power == heads:
        return tuple(slopes)
    return tuple((slopes[1::2] + slopes[::2])[:heads])


def alibi_bias(slopes: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """(head,), (row, query), (row, key) -> the bias (row, head, query, key) = -slope * distance, in fp32."""
    distance = key_positions[:, None, None, :] - query_positions[:, None, :, None]
    return slopes[None, :, None, None] * distance
