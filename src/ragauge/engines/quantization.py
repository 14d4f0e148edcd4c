"""Numbers as integers with a scale: vectors, and the keys and values of stored documents."""

import torch
from torch import Tensor

from ragauge.errors import UserError

MAX_INT8 = 127  # -128 is not used, so that a vector and its negative round alike
# a vector's largest magnitude is at least this, so that nothing is divided by zero
MIN_MAGNITUDE = 1e-20
# numbers with a scale and an offset in common, as in KIVI's experiments
GROUP = 32


def quantize(values: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (..., dim) -> 8-bit integers (..., dim) and the fp32 scales (..., 1) to multiply them
    with.
    """
    values = values.float()
    scale = values.abs().amax(-1, keepdim=True).clamp_min_(MIN_MAGNITUDE).mul_(1 / MAX_INT8)
    return (values / scale).round_().to(torch.int8), scale


def quantize_groups(values: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Round each group of `GROUP` numbers along a dimension to 2^bits levels between its extremes.

    KIVI (Liu et al., ICML 2024), section 3: q = round((x - z) / s) with z = min x and s = (max x -
    min x) / (2^bits - 1). A last group of fewer numbers is rounded, too; KIVI leaves it in full
    until it is complete, and a stored document does not grow.

    Args:
        values: (head, token, dim).
        dim: 1: groups of tokens, a channel (keys); 2: groups of channels, a token (values).
        bits: 8 or 4.

    Returns:
        q as bytes (head, token, dim), of 4 bits two in each; s and z in float16, a group.

    Raises:
        UserError: 4 bits, and heads of an odd dimension.
    """
    if bits == 4 and values.shape[-1] % 2:
        raise UserError(f"kv: int4_stored: heads have an odd dimension, {values.shape[-1]}")
    groups = _grouped(values.float(), dim)
    low, high = groups.aminmax(dim=dim + 1, keepdim=True)
    levels = 2**bits - 1
    scale = ((high - low) / levels).half()
    offset = low.half()  # numbers are counted from what is stored, not from the exact minimum
    steps = (groups - offset) / scale.float().clamp_min(MIN_MAGNITUDE)
    codes = _joined(steps.round_().clamp_(0, levels).to(torch.uint8), dim, values.shape[dim])
    if bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    return codes.contiguous(), scale, offset


def dequantize_groups(codes: Tensor, scale: Tensor, offset: Tensor, dim: int, bits: int) -> Tensor:
    """Return the numbers (head, token, dim) of `quantize_groups` in fp32: q * s + z."""
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    values = _grouped(codes, dim).float().mul_(scale).add_(offset)
    return _joined(values, dim, codes.shape[dim])


def _grouped(values: Tensor, dim: int) -> Tensor:
    """A dimension in groups (..., group, member, ...); the last one repeats its last member."""
    size = values.shape[dim]
    members = torch.arange(-(-size // GROUP) * GROUP, device=values.device).clamp_max_(size - 1)
    return values.index_select(dim, members).unflatten(dim, (-1, GROUP))


def _joined(groups: Tensor, dim: int, size: int) -> Tensor:
    """The reverse of `_grouped`."""
    return groups.flatten(dim, dim + 1).narrow(dim, 0, size)
