"""When the database is queried during generation, and when generation waits for it: one file a schedule."""

from __future__ import annotations

from typing import cast

from ragauge import registry
from ragauge.generation.schedules._base import Schedule, SequenceInputs

__all__ = ["Schedule", "SequenceInputs", "kind"]


def kind(name: str) -> type[Schedule]:
    """The class of a schedule. Raises UserError with the choices if there is none of that name."""
    return cast(type[Schedule], registry.component("schedule", name, Schedule))
