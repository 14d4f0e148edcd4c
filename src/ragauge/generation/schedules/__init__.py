"""When the database is asked during generation, and what generation waits for: one file a schedule."""

from __future__ import annotations

from typing import cast

from ragauge import registry
from ragauge.generation.schedules._base import Schedule, SequenceInputs


def kind(name: str) -> type[Schedule]:
    """The schedule of that name, whose class attributes say what it does; UserError with the choices without one."""
    return cast(type[Schedule], registry.component("schedule", name, Schedule))


__all__ = ["Schedule", "SequenceInputs", "kind"]
