"""Retrieval before generation alone, as in plain retrieval-augmented generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import Fresh


@dataclass(frozen=True)
class RetrieveOnce(Schedule):
    """Asks once, with the first 64 tokens, and waits for the reply; its neighbours stay to the end."""

    every_window: ClassVar[bool] = False

    def source(self, sequence: SequenceInputs) -> Fresh:
        """See `Schedule.source`."""
        return Fresh(self.ask(sequence), self.windows, sequence.note, self.reads_at)
