"""FINCH (Corallo and Papotti, TACL 2024), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.methods.compressors.base import WindowCompressor

if TYPE_CHECKING:
    from torch import Tensor


class Finch(WindowCompressor):
    """Attention of the question, each of its tokens weighted by the number of keys it sees; keys
    move together.
    """

    contiguous = True

    def averaged(self, attention: Tensor) -> Tensor:
        import torch

        queries, before = attention.shape[1:]
        seen = torch.arange(before + 1, before + queries + 1, device=attention.device)
        return (attention * seen[:, None]).mean(1)
