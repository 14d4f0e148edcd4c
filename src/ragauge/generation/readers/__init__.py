"""How a sequence reads its neighbours: one file per form, found by its name; `generation.reader` has what they load."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from ragauge import registry
from ragauge.errors import SettingError
from ragauge.generation.readers._base import Checkpoint, NeighbourReader


def kind(form: str) -> type[NeighbourReader]:
    """The class of the form of this name. Raises UserError with the choices if there is none."""
    return cast(type[NeighbourReader], registry.component("form", form, NeighbourReader))


def reader_of(form: str, **options: Any) -> NeighbourReader:
    """The form of this name with its own ones of `options`. Raises UserError if there is none of that name."""
    own = {field.name for field in fields(kind(form))}  # type: ignore[arg-type]
    return kind(form)(**{key: value for key, value in options.items() if key in own})


def check_options(form: str, given: set[str]) -> None:
    """Raise SettingError if a given option belongs to other forms only."""
    for key in sorted(given - kind(form).options()):
        if names := having(key):
            raise SettingError(key, f"only valid with form {' or '.join(map(repr, names))}, not {form!r}")


def having(option: str) -> list[str]:
    """The forms with this option."""
    return [name for name in registry.names("form") if option in kind(name).options()]


def run_by(engine: str) -> list[str]:
    """The forms that this engine runs."""
    return [name for name in registry.names("form") if engine in kind(name).engines]


def described() -> str:
    """The forms, each with what it is."""
    kinds = {name: kind(name) for name in registry.names("form")}
    notes = {name: ", must be trained first" if form.needs_training else "" for name, form in kinds.items()}
    return "; ".join(f"{name}: {form.label}{notes[name]}" for name, form in kinds.items())


__all__ = ["Checkpoint", "NeighbourReader", "check_options", "described", "having", "kind", "reader_of", "run_by"]
