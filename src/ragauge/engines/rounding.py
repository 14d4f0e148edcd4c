"""Numbers as 8-bit integers with a scale: vectors, and the slots of a cache that keeps them so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST = 127  # of an 8-bit integer; -128 is not used, so that a vector and its negative round alike
LEAST = 1e-20  # largest magnitude of a vector that is divided by


def rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (..., dim) -> 8-bit integers (..., dim) and the fp32 scales (..., 1) to multiply them with."""
    values = values.float()
    scale = values.abs().amax(-1, keepdim=True).clamp_min_(LEAST).mul_(1 / LARGEST)
    return (values / scale).round_().to(torch.int8), scale


class Int8Slots:
    """Keys or values (kv_head, slot, dim) in 8 bits, a scale for each head and slot.

    What is written is rounded, what is read is a tensor in `dtype`. Slots that are copied from one cache to another are
    copied as they are (`parts`), so that they are rounded once.
    """

    def __init__(self, heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.parts = (
            torch.empty(heads, slots, dim, dtype=torch.int8, device=device),
            torch.empty(heads, slots, 1, dtype=torch.float32, device=device),
        )

    @property
    def shape(self) -> torch.Size:
        """(kv_head, slot, dim)."""
        return self.parts[0].shape

    def __getitem__(self, index: Any) -> Tensor:
        """The numbers of some heads and slots, as of a tensor indexed by them."""
        return self._read(*(part[index] for part in self.parts))

    def __setitem__(self, index: Any, values: Tensor) -> None:
        for part, new in zip(self.parts, rounded(values), strict=True):
            part[index] = new

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """As `Tensor.index_select`."""
        return self._read(*(part.index_select(dim, index) for part in self.parts))

    def _read(self, integers: Tensor, scale: Tensor) -> Tensor:
        return (integers * scale).to(self.dtype)


Slots = Tensor | Int8Slots


def parts(slots: Slots) -> tuple[Tensor, ...]:
    """The tensors (kv_head, slot, ...) that hold keys or values: themselves, or integers and scales."""
    return slots.parts if isinstance(slots, Int8Slots) else (slots,)
