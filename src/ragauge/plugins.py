"""Components of other installed packages, which name them as entry points.

    [project.entry-points."ragauge.methods"]
    last_first = "ragauge_last_first.methods.last_first"

The entry point's value is a module that bears the component's name; the module is what a file of this package would be.
Nothing of a plugin is imported to list it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from ragauge.errors import UserError, explain_missing_extra

# kind -> group of entry points
GROUPS = {
    "method": "ragauge.methods",
    "dataset": "ragauge.datasets",
    "metric": "ragauge.metrics",
    "ranker": "ragauge.rankers",
    "compressor": "ragauge.compressors",
    "engine": "ragauge.engines",
    "item": "ragauge.items",
    "schedule": "ragauge.schedules",
    "index": "ragauge.indexes",
}
_KINDS = {group: kind for kind, group in GROUPS.items()}


@dataclass(frozen=True, order=True)
class Plugin:
    """A component of an installed package."""

    kind: str  # a key of GROUPS
    name: str
    module: str  # its full name
    package: str  # the distribution, as `pip list` shows it
    version: str

    @property
    def origin(self) -> str:
        """The package and its version."""
        return f"{self.package} {self.version}"

    @property
    def top(self) -> str:
        """The module's outermost package."""
        return self.module.partition(".")[0]

    def load(self) -> ModuleType:
        """The module.

        Raises:
            UserError: it does not bear the component's name, or it cannot be imported, whatever the reason.
        """
        if self.module.rpartition(".")[2] != self.name:
            raise UserError(
                f"{self.kind} {self.name!r} of {self.origin}: its module is {self.module}; a component's file bears "
                f"its name, as in {self.module.rpartition('.')[0] or self.module}.{self.name}"
            )
        try:
            with explain_missing_extra():
                return importlib.import_module(self.module)
        except Exception as error:  # a plugin's code may raise anything
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            told = " ".join(f"{kind}{error}".split())
            raise UserError(f"{self.kind} {self.name!r} of {self.origin} cannot be imported: {told}") from error


@cache
def installed() -> tuple[Plugin, ...]:
    """The components of all installed packages, sorted; names may clash (`registry` refuses them)."""
    points = metadata.entry_points()
    found = {_plugin(point) for group in _KINDS for point in points.select(group=group)}
    return tuple(sorted(found))


def of_kind(kind: str) -> Iterator[Plugin]:
    """The components of a kind; none where packages cannot add any."""
    return (plugin for plugin in installed() if plugin.kind == kind) if kind in GROUPS else iter(())


def of_module(module: str) -> tuple[Plugin, ...]:
    """The components of the packages that a module belongs to, by its outermost package; none of other modules."""
    return _by_top().get(module.partition(".")[0], ())


def packages() -> dict[str, str]:
    """The installed packages with components, and their versions."""
    return {plugin.package: plugin.version for plugin in installed()}


@cache
def path_of(module: str) -> Path | None:
    """The file of a module of a plugin; None where there is none. Nothing is imported: its packages are searched."""
    parts, places, spec = module.split("."), None, None
    for depth in range(len(parts)):
        spec = _spec(".".join(parts[: depth + 1]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else []
    path = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return path if path and path.is_file() else None


def _spec(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return next((spec for find in finders if find and (spec := find(name, places)) is not None), None)


@cache
def _by_top() -> dict[str, tuple[Plugin, ...]]:
    tops: dict[str, tuple[Plugin, ...]] = {}
    for plugin in installed():
        tops[plugin.top] = (*tops.get(plugin.top, ()), plugin)
    return tops


def _plugin(point: metadata.EntryPoint) -> Plugin:
    assert point.dist is not None  # as `metadata.entry_points` finds them
    return Plugin(_KINDS[point.group], point.name, point.value.strip(), point.dist.name, point.dist.version)
