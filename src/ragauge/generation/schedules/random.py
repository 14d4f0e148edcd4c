"""The control of retrieval: neighbours drawn at random from the same database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import RandomNeighbours, sequence_rng


@dataclass(frozen=True)
class Random(Schedule):
    """As many neighbours as retro_plus, each window's drawn at random. Queries no index, waits for nothing.

    Retrieval must beat it: more text of the same kind can lower perplexity by itself.
    """

    asks_index: ClassVar[bool] = False

    def source(self, sequence: SequenceInputs) -> RandomNeighbours:
        """See `Schedule.source`."""
        assert sequence.passages is not None
        rng = sequence_rng(self.seed, sequence.key)
        excluded = self.excluded_documents(sequence)
        return RandomNeighbours(sequence.passages, self.windows, rng, self.neighbours, excluded)
