"""The file is the registry: `methods/superposition.py` is the method `superposition`.

An item's file in a folder bears both names: `report/items/cfic/table_1.py` is the item
`cfic_table_1`. A component is the one public class that its module defines below the package's base
class, or, where the package keeps functions (metrics), the module itself. `base`, a file or a
folder, holds the public parts that components of a kind are made of; names that begin with an
underscore are private helpers.

Installed packages add components of their own (`plugins`). A name that stands for two components is
refused.
"""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from ragauge import plugins
from ragauge.errors import UserError, unknown
from ragauge.plugins import OWN, Component

AFFECTS_RESULTS = False

ALL_PAPERS = "All papers"
PACKAGES = {
    "method": "ragauge.methods",
    "dataset": "ragauge.datasets",
    "engine": "ragauge.engines.backends",
    "metric": "ragauge.metrics",
    "ranker": "ragauge.methods.rankers",
    "compressor": "ragauge.methods.compressors",
    "mode": "ragauge.pipelines.modes",
    "schedule": "ragauge.pipelines.schedules",
    "item": "ragauge.report.items",
    "index": "ragauge.pipelines.indexes",
    "verb": "ragauge.cli",
}


def names(kind: str) -> list[str]:
    """The names of all components of a kind, sorted. Nothing is imported: a list must not wait for
    torch.
    """
    return sorted(_components(kind))


def module_name(kind: str, name: str, where: str = "") -> str:
    """The full name of a component's module.

    Raises:
        UserError: there is none of that name, with the choices.
    """
    return _component(kind, name, where).module


def module(kind: str, name: str, where: str = "") -> ModuleType:
    """The module of one component.

    Raises:
        UserError: as `module_name`; a component of another package cannot be imported.
    """
    try:
        return _component(kind, name).load()
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from error


def paper(item: str) -> str:
    """The paper that an item is of, by `PAPER` of its folder; of an item without one, all papers."""
    folder = module_name("item", item).rpartition(".")[0]
    return str(getattr(importlib.import_module(folder), "PAPER", ALL_PAPERS))


def component(kind: str, name: str, base: type, where: str = "") -> type:
    """The one subclass of `base` that the component's module defines."""
    there = module(kind, name, where)
    classes = _classes(there, base)
    if len(classes) != 1:
        problem = (
            f"{there.__name__} defines {len(classes)} subclasses of {base.__name__}; it needs one"
        )
        raise (
            TypeError(problem)
            if origin(kind, name) == OWN
            else UserError(f"{kind} {name!r}: {problem}")
        )
    return classes[0]


@cache  # a plan of a thousand pipelines asks for each of them
def _classes(there: ModuleType, base: type) -> list[type]:
    """The subclasses of `base` that a module defines itself."""
    return [
        value
        for value in vars(there).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == there.__name__
    ]


def origin(kind: str, name: str) -> str:
    """The package that a component comes from, with its version."""
    return _component(kind, name).origin


def problem(kind: str, name: str) -> str | None:
    """Why a component of another package cannot be used, in one line; None where it can. Imports
    it.
    """
    if origin(kind, name) == OWN:
        return None
    try:
        module(kind, name)
    except UserError as error:
        return str(error)
    return None


def usable(kind: str) -> list[str]:
    """The names of the components that can be used, for those who take all there are. Imports other
    packages' alone.
    """
    return [name for name in names(kind) if problem(kind, name) is None]


def _component(kind: str, name: str, where: str = "") -> Component:
    known = _components(kind)
    if name not in known:
        raise unknown(kind, name, known, where)
    return known[name]


@cache
def _components(kind: str) -> dict[str, Component]:
    """The components by name. Raises UserError: two have the same name."""
    package = importlib.util.find_spec(PACKAGES[kind])
    own = _below(kind, package.submodule_search_locations or (), PACKAGES[kind]) if package else ()
    components: dict[str, Component] = {}
    for one in (*own, *(plugin for plugin in plugins.installed() if plugin.kind == kind)):
        other = components.setdefault(one.name, one)
        if other is not one:
            raise UserError(
                f"{kind} {one.name!r} is in {other.origin} and in {one.origin}"
                "; uninstall one of them"
            )
    return components


def _below(
    kind: str, folders: Iterable[str], package: str, prefix: str = ""
) -> Iterator[Component]:
    """Yield the components in a folder and below it."""
    for entry in pkgutil.iter_modules(folders):
        if entry.name.startswith("_") or entry.name == "base":
            continue
        if entry.ispkg and kind == "item":
            inside = [str(Path(folder, entry.name)) for folder in folders]
            yield from _below(kind, inside, f"{package}.{entry.name}", f"{prefix}{entry.name}_")
        elif not entry.ispkg:
            yield Component(kind, f"{prefix}{entry.name}", f"{package}.{entry.name}")
