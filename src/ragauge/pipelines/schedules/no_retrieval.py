"""The decoder alone: the baseline of perplexity and latency."""

from ragauge.pipelines.schedules.base import Schedule, SequenceInputs
from ragauge.pipelines.sources import NoNeighbours


class NoRetrieval(Schedule):
    """Reads no neighbours and queries nothing."""

    reads_neighbours = False
    queries_index = False
    every_window = False

    def source(self, sequence: SequenceInputs) -> NoNeighbours:
        return NoNeighbours()
