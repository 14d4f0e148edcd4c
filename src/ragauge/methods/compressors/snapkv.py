"""SnapKV (Li et al., NeurIPS 2024), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.methods.compressors.base import WindowCompressor

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 64  # last tokens of the prompt, which all stay
POOLED = 5  # neighbours whose scores are averaged (the paper: the maximum of 7)


class SnapKV(WindowCompressor):
    """Attention of the prompt's last tokens, averaged over them, over neighbours and over the heads
    that share keys.
    """

    def __init__(self, question_tokens: int) -> None:
        super().__init__(WINDOW)

    def averaged(self, attention: Tensor) -> Tensor:
        import torch.nn.functional as F

        weights = attention.mean(1)
        if not weights.shape[-1]:
            return weights
        return F.avg_pool1d(weights[None], POOLED, stride=1, padding=POOLED // 2)[0]
