"""Trains gated cross-attention (`generation/readers/cross_attention.py`) and its encoder of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ragauge.training.retrofit.forms._base import Trainable

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines import LM
    from ragauge.engines.decoder import Decoder
    from ragauge.generation.reader import Tokens
    from ragauge.generation.retrofit.cross_weights import CrossWeights
    from ragauge.generation.windows import Windows
    from ragauge.training.retrofit.losses.parts import Neighbours


class CrossAttentionTraining(Trainable):
    """Cross-attention in some layers, and layers that encode neighbours."""

    cross_layers: int = Field(3, ge=1, description="form cross_attention: number of decoder layers that get it")
    encoder_layers: int = Field(
        2, ge=1, description="form cross_attention: number of encoder layers, copies of the decoder's first ones"
    )

    def make(self, lm: LM, seed: int) -> CrossWeights:
        """See `Trainable.make`."""
        from ragauge.generation.retrofit.cross_weights import CrossWeights, cross_layers

        layers = cross_layers(lm.shape.layers, self.cross_layers)
        return CrossWeights(lm.decoder, layers, min(self.encoder_layers, lm.shape.layers))

    def nll(
        self, decoder: Decoder, trained: CrossWeights, ids: Tokens, neighbours: Neighbours, windows: Windows
    ) -> Tensor:
        """See `Trainable.nll`."""
        from ragauge.training.retrofit.losses.cross_attention import nll

        return nll(decoder, trained, ids, neighbours, windows)
