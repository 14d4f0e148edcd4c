"""How a sequence reads its neighbours: one file each, found by its name; see `ragauge.generation.reader`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ragauge import registry

if TYPE_CHECKING:
    from ragauge.generation.reader import NeighbourReader


def reader_of(form: str, **options: Any) -> NeighbourReader:
    """The form of this name, with those of the options that it has. Raises UserError where there is none."""
    from ragauge.generation.reader import NeighbourReader

    kind: type[NeighbourReader] = registry.component("reader", form, NeighbourReader)
    own = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in options.items() if key in own})
