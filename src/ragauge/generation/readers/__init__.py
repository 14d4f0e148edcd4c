"""How a sequence reads its neighbours: one file a form, found by its name. `generation.reader` is what they load."""

from __future__ import annotations

from typing import Any, cast

from ragauge import registry
from ragauge.errors import SettingError
from ragauge.generation.readers._base import Checkpoint, NeighbourReader


def kind(form: str) -> type[NeighbourReader]:
    """The form of that name, whose class attributes say what it takes; UserError with the choices without one."""
    return cast(type[NeighbourReader], registry.component("reader", form, NeighbourReader))


def reader_of(form: str, **options: Any) -> NeighbourReader:
    """The form of this name, with those of the options that it has. Raises UserError where there is none."""
    return kind(form)(**{key: value for key, value in options.items() if key in kind(form).options()})


def check_options(form: str, given: set[str]) -> None:
    """Raise SettingError where an option that was given is one of other forms."""
    kinds = {name: kind(name) for name in registry.names("reader")}
    for key in sorted(given - kinds[form].options()):
        if having := [name for name, other in kinds.items() if key in other.options()]:
            forms = " or ".join(map(repr, having))
            raise SettingError(key, f"only valid with form {forms}, not {form!r}")


__all__ = ["Checkpoint", "NeighbourReader", "check_options", "kind", "reader_of"]
