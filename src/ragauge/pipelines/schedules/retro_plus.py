"""RETRO+ (PipeRAG, section 4.4): RETRO with retrievals at any interval."""

from dataclasses import dataclass

from ragauge.pipelines.schedules.base import Schedule


@dataclass(frozen=True)
class RetroPlus(Schedule):
    """Queries every `interval` tokens with the 64 before, and waits for each reply."""
