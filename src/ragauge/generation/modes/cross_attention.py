"""Gated chunked cross-attention to an encoding of the neighbours, in some layers of a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ragauge.errors import UserError
from ragauge.generation.modes.base import Checkpoint, Mode, ModeTraining

if TYPE_CHECKING:
    from ragauge.engines import LM
    from ragauge.generation.modes._cross_attention import CrossDecoder, CrossWeights


class CrossAttentionTraining(ModeTraining):
    """Trains cross-attention in some layers, and layers that encode neighbours."""

    cross_layers: int = Field(3, ge=1, description="mode cross_attention: number of decoder layers that get it")
    encoder_layers: int = Field(2, ge=1, description="mode cross_attention: encoder layers, copied from the decoder")

    def make(self, lm: LM, seed: int) -> CrossWeights:
        from ragauge.generation.modes._cross_attention import CrossWeights, cross_layers

        layers = cross_layers(lm.shape.layers, self.cross_layers)
        return CrossWeights(lm.decoder, layers, min(self.encoder_layers, lm.shape.layers))


@dataclass(frozen=True)
class CrossAttention(Mode):
    """Gated cross-attention in some layers, trained by RETRO-fit."""

    label: ClassVar[str] = "cross-attention"
    engines: ClassVar[tuple[str, ...]] = ("torch",)
    needs_training: ClassVar[bool] = True
    training: ClassVar[type[ModeTraining]] = CrossAttentionTraining

    def load(self, checkpoint: Checkpoint) -> CrossDecoder:
        from ragauge.generation.modes._cross_attention import CrossDecoder, CrossWeights

        if checkpoint.adapters is None:
            raise UserError("mode 'cross_attention' requires trained weights: give --adapters")
        lm = checkpoint.decoder()
        return CrossDecoder(lm, CrossWeights.load(checkpoint.adapters, lm, checkpoint.sha256))
