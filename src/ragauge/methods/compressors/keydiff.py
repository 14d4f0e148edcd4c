"""KeyDiff (Park et al., 2025, arXiv 2504.15364): keys unlike the others draw attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.methods.compressors.base import Compressor, Context

if TYPE_CHECKING:
    from torch import Tensor


class KeyDiff(Compressor):
    """The negative cosine of a key with the mean of all keys of its head, each of length 1."""

    def scores(self, context: Context) -> list[Tensor]:
        import torch.nn.functional as F

        layers = (
            F.normalize(context.keys(i).float(), dim=-1) for i in range(context.cache.shape.layers)
        )
        return [-F.cosine_similarity(keys, keys.mean(1, keepdim=True), dim=-1) for keys in layers]
