"""RETRO+ (PipeRAG, section 4.4): RETRO with retrievals at any interval."""

from ragauge.pipelines.schedules.base import Schedule


class RetroPlus(Schedule):
    """Queries every `interval` tokens with the 64 before, and waits for each reply."""
