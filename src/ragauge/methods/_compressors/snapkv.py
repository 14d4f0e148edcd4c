"""SnapKV (Li et al., NeurIPS 2024), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ragauge.methods._compressors._base import Compressor, Context, Window, by_group

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import Watch

WINDOW = 64  # last tokens of the prompt, which are all kept
POOLED = 5  # neighbours whose scores are averaged (the paper: the maximum of 7)


class SnapKV(Compressor):
    """Attention of the prompt's last tokens, averaged over them, over neighbours and over the heads that share keys."""

    question_aware: ClassVar[bool] = True

    def __init__(self) -> None:
        self.window = Window(WINDOW)

    def watch(self) -> Watch:
        return self.window

    def scores(self, context: Context) -> list[Tensor]:
        import torch.nn.functional as F

        found = []
        for layer, queries in sorted(self.window.queries.items()):
            before = context.cache.length - queries.shape[1]
            weights = self.window.attention(layer, context.cache)[..., :before].mean(1)
            pooled = F.avg_pool1d(weights[None], POOLED, stride=1, padding=POOLED // 2)[0] if before else weights
            grouped = by_group(pooled, context.cache.shape.kv_heads[layer])
            found.append(F.pad(grouped, (0, queries.shape[1]), value=float("inf")))
        return found
