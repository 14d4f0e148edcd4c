"""RETRO+ (PipeRAG, section 5.1): RETRO with retrievals at any interval."""

from __future__ import annotations

from dataclasses import dataclass

from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import BlockingRetrieval


@dataclass(frozen=True)
class RetroPlus(Schedule):
    """Queries every `interval` tokens with the 64 before, and waits for each reply."""

    def source(self, sequence: SequenceInputs) -> BlockingRetrieval:
        """See `Schedule.source`."""
        return BlockingRetrieval(self.retrieval(sequence), self.windows, sequence.note, self.reads_at)
