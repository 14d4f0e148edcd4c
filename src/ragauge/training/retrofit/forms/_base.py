"""What the trainable forms share: a file here with one class below `Trainable`, named after its reader's file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines import LM
    from ragauge.engines.decoder import Decoder
    from ragauge.generation.reader import Tokens
    from ragauge.generation.retrofit.trained import TrainedWeights
    from ragauge.generation.windows import Windows
    from ragauge.training.retrofit.losses.parts import Neighbours


class Trainable(BaseModel, ABC):
    """What is trained of a form of reading neighbours; its fields are options. Importing it imports no torch."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @abstractmethod
    def make(self, lm: LM, seed: int) -> TrainedWeights:
        """The weights before training, with which neighbours have no effect or are read by the unchanged decoder."""

    @abstractmethod
    def nll(self, decoder: Decoder, trained: Any, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
        """Negative log-likelihood of the tokens after the first query, in nats: (token - 64,), fp32, differentiable.

        Args:
            trained: what `make` returned.
            ids: of the sequence.
            neighbours: of each window.
        """
