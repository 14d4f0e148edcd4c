"""RETRO (Borgeaud et al., ICML 2022): retrieval every 64 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragauge.errors import SettingError
from ragauge.generation.schedules._base import Schedule, SequenceInputs
from ragauge.generation.sources import Fresh
from ragauge.generation.windows import CHUNK

if TYPE_CHECKING:
    from ragauge.generation.settings import PipelineSettings


@dataclass(frozen=True)
class Retro(Schedule):
    """Asks every 64 tokens with the 64 before, and waits for each reply."""

    @classmethod
    def check(cls, settings: PipelineSettings) -> None:
        """See `Schedule.check`."""
        super().check(settings)
        if settings.interval != CHUNK:
            raise SettingError(
                "interval", f"schedule 'retro' requires {CHUNK}, not {settings.interval}; see retro_plus"
            )

    def source(self, sequence: SequenceInputs) -> Fresh:
        """See `Schedule.source`."""
        return Fresh(self.ask(sequence), self.windows, sequence.note, self.reads_at)
