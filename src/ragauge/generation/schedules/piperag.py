"""PipeRAG (Jiang et al., 2024, sections 4.1 to 4.3): retrieval beside generation, by stale queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import Prefetched


@dataclass(frozen=True)
class PipeRAG(Schedule):
    """Asks every `interval` tokens for the window after the next, with the tokens known by then, while it decodes.

    Only the first reply is waited for, and any later one that takes longer than its window. With nprobe `hide` (S3)
    each search scans as many inverted lists as the window beside it is predicted to hide. With `read_ahead` the thread
    that asks has the neighbours read as well.
    """

    stale: ClassVar[bool] = True

    def source(self, sequence: SequenceInputs) -> Prefetched:
        """See `Schedule.source`."""
        prepare = sequence.prepare if self.settings.read_ahead else None
        return Prefetched(self.ask(sequence), self.windows, sequence.note, prepare)
