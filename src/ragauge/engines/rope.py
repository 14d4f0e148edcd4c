"""Position encodings at real-valued positions: rotary embedding and ALiBi."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.shape import Shape

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of rotary angles, (token, 1, dim) each."""


def rotation(
    positions: Tensor, shape: Shape, layer: int = 0, scaled: bool = False
) -> tuple[Tensor, Tensor]:
    """Cosines and sines (token, 1, dim) of a layer's rotary angles of real positions (token,), in
    fp32.

    Su et al. 2021, eq. 34, in the half-split order of the Llama checkpoints. The sines of the first
    half are negated, so that rotating is `x * cos + swapped_halves(x) * sin`. Beyond `rotary_dim`
    the last angles of each half are 0. Rotations from position 0 are `scaled` by
    `rope_attention_factor`.
    """
    dim = shape.rotary_dim or shape.head_dim
    local = shape.is_local(layer)
    theta = shape.rope_theta if shape.local_theta is None or not local else shape.local_theta
    inverse = theta ** (
        -torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device) / dim
    )
    if shape.rope_divisors and not local:
        inverse = inverse / inverse.new_tensor(shape.rope_divisors)
    if dim < shape.head_dim:
        inverse = F.pad(inverse, (0, (shape.head_dim - dim) // 2))
    angle = (positions.float() / (1.0 if local else shape.rope_scale))[:, None] * inverse[None]
    cos = angle.cos()
    sin = angle.sin()
    if scaled and shape.rope_attention_factor != 1 and not local:
        cos = cos.where(inverse == 0, cos * shape.rope_attention_factor)
        sin = sin * shape.rope_attention_factor
    return torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (token, head, dim) by the token's angles."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def rotate_further(keys: Tensor, by: Tensor, shape: Shape, layer: int) -> Tensor:
    """Rotate a layer's keys (kv_head, token, dim) further by real distances (token,) or (kv_head,
    token), in fp32. R(a) R(b) = R(a + b), so that this is what rotating the plain keys to the new
    positions would have given.
    """
    cos, sin = rotation(by.flatten(), shape, layer)
    cos, sin = (x.view(*by.shape, -1) for x in (cos, sin))
    return rotate(keys.float(), cos, sin).to(keys.dtype)


def alibi_bias(slopes: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """(head,), (row, query), (row, key) -> the bias (row, head, query, key) = -slope * distance, in
    fp32. Keys may stand at other positions in each head: (row, head, key).
    """
    keys = key_positions if key_positions.ndim == 3 else key_positions[:, None]
    distance = keys[:, :, None, :] - query_positions[:, None, :, None]
    return slopes[None, :, None, None] * distance
