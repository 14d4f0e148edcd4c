"""The decoder alone: the baseline of perplexity and latency."""

from dataclasses import dataclass
from typing import ClassVar

from ragauge.pipelines.schedules.base import Schedule, SequenceInputs
from ragauge.pipelines.sources import NoNeighbours


@dataclass(frozen=True)
class NoRetrieval(Schedule):
    """Reads no neighbours and queries nothing."""

    reads_neighbours: ClassVar[bool] = False
    queries_index: ClassVar[bool] = False
    every_window: ClassVar[bool] = False

    def source(self, sequence: SequenceInputs) -> NoNeighbours:
        return NoNeighbours()
