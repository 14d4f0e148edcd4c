"""Knorm (Devoto et al., EMNLP 2024): keys of small norm draw attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.methods.compressors.base import Compressor, Context

if TYPE_CHECKING:
    from torch import Tensor


class Knorm(Compressor):
    """The negative norm of a key."""

    def scores(self, context: Context) -> list[Tensor]:
        return [
            -context.keys(layer).float().norm(dim=-1) for layer in range(context.cache.shape.layers)
        ]
