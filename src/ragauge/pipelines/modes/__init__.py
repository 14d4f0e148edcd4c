"""Attention modes, how a decoder reads retrieved neighbours: one file a mode, found by its name.

`<name>.py` imports no torch; `_<name>.py` next to it reads, trains and exports.
"""

from dataclasses import fields
from typing import Any, cast

from ragauge import registry
from ragauge.pipelines.modes.base import Checkpoint, Mode, WeightOptions

__all__ = [
    "Checkpoint",
    "Mode",
    "WeightOptions",
    "describe",
    "kind",
    "kinds",
    "make",
    "trainable",
    "with_option",
]


def kind(name: str) -> type[Mode]:
    """The class of a mode. Raises UserError with the choices if there is none of that name."""
    return cast(type[Mode], registry.component("mode", name, Mode))


def kinds() -> dict[str, type[Mode]]:
    return {name: kind(name) for name in registry.names("mode")}


def make(name: str, options: dict[str, Any]) -> Mode:
    """A mode with those of the options that it has. Raises UserError if there is none of that name."""
    own = {field.name for field in fields(kind(name))}  # type: ignore[arg-type]
    return kind(name)(**{key: value for key, value in options.items() if key in own})


def with_option(option: str) -> list[str]:
    return [name for name, mode in kinds().items() if option in mode.option_names()]


def trainable() -> list[str]:
    """Those that RETRO-fit trains."""
    return [name for name, mode in kinds().items() if mode.trainable]


def describe() -> str:
    notes = {
        name: ", must be trained first" if mode.needs_training else ""
        for name, mode in kinds().items()
    }
    return "; ".join(f"{name}: {mode.label}{notes[name]}" for name, mode in kinds().items())
