"""Trains joint attention (`generation/readers/joint.py`): adapters of the projections that read a neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ragauge.training.retrofit.forms._base import Trainable

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines import LM
    from ragauge.engines.decoder import Decoder
    from ragauge.generation.reader import Tokens
    from ragauge.generation.retrofit.adapters import Adapters
    from ragauge.generation.windows import Windows
    from ragauge.training.retrofit.losses.parts import Neighbours


class JointTraining(Trainable):
    """Low-rank terms and offsets; neighbours are placed as by `JointAttention()`."""

    rank: int = Field(8, ge=1, description="form joint: rank of the low-rank terms")

    def make(self, lm: LM, seed: int) -> Adapters:
        """See `Trainable.make`."""
        from ragauge.generation.retrofit.adapters import Adapters

        return Adapters(lm.decoder.weights, self.rank, seed)

    def nll(self, decoder: Decoder, trained: Adapters, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
        """See `Trainable.nll`."""
        from ragauge.training.retrofit.losses.joint import nll

        return nll(decoder, trained, ids, neighbours, windows)
