"""PipeRAG (Jiang et al., 2024, section 3.2): retrieval concurrent with generation, by stale
queries.
"""

from ragauge.pipelines.schedules.base import Schedule, SequenceInputs
from ragauge.pipelines.sources import PrefetchedRetrieval


class PipeRAG(Schedule):
    """Prefetches: queries every `interval` tokens for the window after the next, with the tokens
    known by then. Decoding waits for the first reply, and for any later one that takes longer than
    its window. With nprobe `hide` each search but the first scans as many inverted lists as the
    concurrent window is predicted to hide.
    """

    stale = True

    def source(self, sequence: SequenceInputs) -> PrefetchedRetrieval:
        prepare = sequence.prepare if self.read_ahead else None
        return PrefetchedRetrieval(self.retrieval(sequence), self.windows, sequence.note, prepare)
