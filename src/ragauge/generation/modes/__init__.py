"""Attention modes, how a decoder reads retrieved neighbours: one file a mode, found by its name.

`<name>.py` states a mode for configuration, plan and tables, and imports no torch; `_<name>.py` beside it reads, trains
and exports.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from ragauge import registry
from ragauge.errors import SettingError
from ragauge.generation.modes._base import Checkpoint, Mode, ModeTraining

__all__ = [
    "Checkpoint",
    "Mode",
    "ModeTraining",
    "check_options",
    "describe",
    "kind",
    "make",
    "run_by",
    "trainable",
    "with_option",
]


def kind(name: str) -> type[Mode]:
    """The class of a mode. Raises UserError with the choices if there is none of that name."""
    return cast(type[Mode], registry.component("mode", name, Mode))


def make(name: str, options: dict[str, Any]) -> Mode:
    """A mode with those of the options that it has. Raises UserError if there is none of that name."""
    own = {field.name for field in fields(kind(name))}  # type: ignore[arg-type]
    return kind(name)(**{key: value for key, value in options.items() if key in own})


def check_options(name: str, given: set[str]) -> None:
    """Raise SettingError if a given option belongs to other modes only."""
    for key in sorted(given - kind(name).option_names()):
        if names := with_option(key):
            raise SettingError(key, f"only valid with mode {' or '.join(map(repr, names))}, not {name!r}")


def with_option(option: str) -> list[str]:
    """The modes that have this option."""
    return [name for name in registry.names("mode") if option in kind(name).option_names()]


def run_by(engine: str) -> list[str]:
    """The modes that an engine runs."""
    return [name for name in registry.names("mode") if engine in kind(name).engines]


def trainable() -> dict[str, type[ModeTraining]]:
    """The options of training, by mode, of those that RETRO-fit trains."""
    classes = {name: kind(name).training for name in registry.names("mode")}
    return {name: training for name, training in classes.items() if training}


def describe() -> str:
    """All modes, each with its label, in one line."""
    kinds = {name: kind(name) for name in registry.names("mode")}
    notes = {name: ", must be trained first" if mode.needs_training else "" for name, mode in kinds.items()}
    return "; ".join(f"{name}: {mode.label}{notes[name]}" for name, mode in kinds.items())
