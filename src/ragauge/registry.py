"""The file is the registry: `methods/superposition.py` is the method `superposition`.

A file in a folder bears both names: `items/cfic/table_1.py` is the item `cfic_table_1`. A component is the one public
class that its module defines below the package's base class, or, where the package keeps functions (metrics), the
module itself. `base`, a file or a folder, holds the public parts that components of a kind are made of; names that
begin with an underscore are private helpers.

Installed packages add components of their own (`plugins`). A name that stands for two components is refused where it is
used.
"""

from __future__ import annotations

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
from ragauge.plugins import Plugin

OWN = "ragauge"  # where components of this package come from
PACKAGES = {
    "method": "ragauge.methods",
    "dataset": "ragauge.datasets",
    "engine": "ragauge.engines.backends",
    "metric": "ragauge.metrics",
    "ranker": "ragauge.rankers",
    "compressor": "ragauge.compressors",
    "mode": "ragauge.generation.modes",
    "schedule": "ragauge.generation.schedules",
    "item": "ragauge.items",
    "index": "ragauge.retrieval.indexes",
    "verb": "ragauge.verbs",
}


def names(kind: str) -> list[str]:
    """The names of all components of a kind, sorted. Nothing is imported: a list must not wait for torch."""
    return sorted(_modules(kind))


def module_name(kind: str, name: str, where: str = "") -> str:
    """The full name of a component's module.

    Raises:
        UserError: there is none of that name, with the choices, or there are two.
    """
    known, place = _modules(kind), f"{where}: " if where else ""
    if name not in known:
        raise unknown(kind, name, sorted(known), where)
    if len(known[name]) > 1:
        raise UserError(f"{place}{kind} {name!r} is in {' and in '.join(origins(kind, name))}; uninstall one of them")
    found = known[name][0]
    return found.module if isinstance(found, Plugin) else found


def module(kind: str, name: str, where: str = "") -> ModuleType:
    """The module of one component.

    Raises:
        UserError: as `module_name`; a component of another package cannot be imported.
    """
    path = module_name(kind, name, where)
    found = _modules(kind)[name][0]
    if not isinstance(found, Plugin):
        return importlib.import_module(path)
    try:
        return found.load()
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from error


def origins(kind: str, name: str) -> list[str]:
    """Where a component comes from: `ragauge`, or a package with its version; several where names clash."""
    return [one.origin if isinstance(one, Plugin) else OWN for one in _modules(kind)[name]]


def problem(kind: str, name: str) -> str | None:
    """Why a component of another package cannot be used, in one line; None where it can. Imports it."""
    if all(origin == OWN for origin in origins(kind, name)):
        return None
    try:
        module(kind, name)
    except UserError as error:
        return str(error)
    return None


def usable(kind: str) -> list[str]:
    """The names of the components that can be used, for those who take all there are. Imports other packages' alone."""
    return [name for name in names(kind) if problem(kind, name) is None]


@cache
def _modules(kind: str) -> dict[str, list[str | Plugin]]:
    """Each component's name, and its module's or what another package says of it; several where names clash."""
    package = importlib.util.find_spec(PACKAGES[kind])
    own = _below(package.submodule_search_locations or (), PACKAGES[kind]) if package else ()
    found: dict[str, list[str | Plugin]] = {name: [path] for name, path in own}
    for plugin in plugins.of_kind(kind):
        found.setdefault(plugin.name, []).append(plugin)
    return found


def _below(folders: Iterable[str], package: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    for found in pkgutil.iter_modules(folders):
        if found.name.startswith("_") or found.name == "base":
            continue
        if found.ispkg:
            inside = [str(Path(folder, found.name)) for folder in folders]
            yield from _below(inside, f"{package}.{found.name}", f"{prefix}{found.name}_")
        else:
            yield f"{prefix}{found.name}", f"{package}.{found.name}"


def component(kind: str, name: str, base: type, where: str = "") -> type:
    """The one subclass of `base` that the component's module defines."""
    found = [
        value
        for value in vars(module(kind, name, where)).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module_name(kind, name)
    ]
    if len(found) != 1:
        told = f"{module_name(kind, name)} defines {len(found)} subclasses of {base.__name__}; it needs one"
        raise TypeError(told) if origins(kind, name) == [OWN] else UserError(f"{kind} {name!r}: {told}")
    return found[0]
