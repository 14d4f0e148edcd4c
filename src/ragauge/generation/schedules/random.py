"""The control of retrieval: neighbours drawn at random from the same database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import Chance, sequence_rng


@dataclass(frozen=True)
class Random(Schedule):
    """As many neighbours as retro_plus, each window's drawn at random. Asks no index, waits for nothing.

    Retrieval must beat it: more text of the same kind can lower perplexity by itself.
    """

    asks_index: ClassVar[bool] = False

    def source(self, sequence: SequenceInputs) -> Chance:
        """See `Schedule.source`."""
        assert sequence.passages is not None
        draw = sequence_rng(self.seed, sequence.key)
        return Chance(sequence.passages, self.windows, draw, self.settings.neighbours, self.passed_over(sequence))
