"""Numbers as 8-bit integers with a scale: vectors, and cache slots that are stored so."""

from typing import Any

import torch
from torch import Tensor

MAX_INT8 = 127  # -128 is not used, so that a vector and its negative round alike
# a vector's largest magnitude is at least this, so that nothing is divided by zero
MIN_MAGNITUDE = 1e-20


def quantize(values: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (..., dim) -> 8-bit integers (..., dim) and the fp32 scales (..., 1) to multiply them
    with.
    """
    values = values.float()
    scale = values.abs().amax(-1, keepdim=True).clamp_min_(MIN_MAGNITUDE).mul_(1 / MAX_INT8)
    return (values / scale).round_().to(torch.int8), scale


class Int8Slots:
    """Keys or values (kv_head, slot, dim) in 8 bits, with a scale for each head and slot.

    Writing quantizes, reading returns a tensor in `dtype`. Slots that move from one cache to
    another are copied as stored (`storage`), so that they are quantized once.
    """

    def __init__(
        self, heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.dtype = dtype
        self.storage = (
            torch.empty(heads, slots, dim, dtype=torch.int8, device=device),
            torch.empty(heads, slots, 1, dtype=torch.float32, device=device),
        )

    @property
    def shape(self) -> torch.Size:
        """(kv_head, slot, dim)."""
        return self.storage[0].shape

    def __getitem__(self, index: Any) -> Tensor:
        integers, scale = (part[index] for part in self.storage)
        return (integers * scale).to(self.dtype)

    def __setitem__(self, index: Any, values: Tensor) -> None:
        for part, new in zip(self.storage, quantize(values), strict=True):
            part[index] = new

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """As `Tensor.index_select`."""
        integers, scale = (part.index_select(dim, index) for part in self.storage)
        return (integers * scale).to(self.dtype)


Slots = Tensor | Int8Slots


def storage(slots: Slots) -> tuple[Tensor, ...]:
    """The tensors (kv_head, slot, ...) that store keys or values: one, or integers and scales."""
    return slots.storage if isinstance(slots, Int8Slots) else (slots,)
