"""Gated chunked cross-attention to an encoding of the neighbours (`retrofit/cross_attention.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ragauge.errors import UserError
from ragauge.generation.readers._base import Checkpoint, NeighbourReader

if TYPE_CHECKING:
    from ragauge.generation.retrofit.cross_attention import CrossDecoding


@dataclass(frozen=True)
class CrossAttention(NeighbourReader):
    """Gated cross-attention in some layers, trained by `ragauge retrofit`."""

    label: ClassVar[str] = "cross-attention"
    engines: ClassVar[tuple[str, ...]] = ("torch",)
    needs_training: ClassVar[bool] = True

    def load(self, checkpoint: Checkpoint) -> CrossDecoding:
        """See `NeighbourReader.load`."""
        from ragauge.generation.retrofit.cross_attention import CrossDecoding
        from ragauge.generation.retrofit.cross_weights import CrossWeights

        if checkpoint.adapters is None:
            raise UserError(f"form {self.name!r} requires trained weights: give --adapters")
        lm = checkpoint.decoder()
        return CrossDecoding(lm, CrossWeights.load(checkpoint.adapters, lm, checkpoint.sha256))
