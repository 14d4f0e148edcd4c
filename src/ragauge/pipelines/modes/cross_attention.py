"""Gated chunked cross-attention to an encoding of the neighbours, in some layers of a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.pipelines.modes.base import Checkpoint, Mode

if TYPE_CHECKING:
    from ragauge.engines.lm import LM
    from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights


class CrossAttention(Mode):
    """Gated cross-attention in some layers, trained by RETRO-fit."""

    label = "cross-attention"
    engines = ("torch",)
    needs_training = True
    trainable = True

    @classmethod
    def untrained(cls, lm: LM, seed: int) -> CrossWeights:
        from ragauge.pipelines.modes._cross_attention import CrossWeights

        return CrossWeights.fresh(lm, seed)

    def load(self, checkpoint: Checkpoint) -> CrossDecoder:
        from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights

        if checkpoint.adapters is None:
            raise UserError("mode 'cross_attention' requires trained weights: give --adapters")
        lm = checkpoint.decoder()
        return CrossDecoder(lm, CrossWeights.load(checkpoint.adapters, lm, checkpoint.sha256))
