"""The file is the registry: `methods/superposition.py` is the method `superposition`.

A file in a folder bears both names: `items/cfic/table_1.py` is the item `cfic_table_1`. A component is the one public
class that its module defines below the package's base class, or, where the package keeps functions (metrics), the
module itself. Files whose name begins with an underscore are helpers.
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

from ragauge.errors import unknown

PACKAGES = {
    "method": "ragauge.methods",
    "dataset": "ragauge.datasets",
    "engine": "ragauge.engines.backends",
    "metric": "ragauge.metrics",
    "ranker": "ragauge.rankers",
    "form": "ragauge.generation.readers",
    "trainable form": "ragauge.training.retrofit.forms",
    "schedule": "ragauge.generation.schedules",
    "item": "ragauge.items",
    "index": "ragauge.retrieval.indexes",
    "verb": "ragauge.verbs",
}


def names(kind: str) -> list[str]:
    """The names of all components of a kind, sorted. Nothing is imported: a list must not wait for torch."""
    return sorted(_modules(kind))


def module_name(kind: str, name: str, where: str = "") -> str:
    """The full name of a component's module; raises UserError with the choices when there is none of that name."""
    known = _modules(kind)
    if name not in known:
        raise unknown(kind, name, sorted(known), where)
    return known[name]


def module(kind: str, name: str, where: str = "") -> ModuleType:
    """The module of one component; raises UserError with the choices when there is none of that name."""
    return importlib.import_module(module_name(kind, name, where))


@cache
def _modules(kind: str) -> dict[str, str]:
    """Each component's name and its module's."""
    package = importlib.util.find_spec(PACKAGES[kind])
    return dict(_below(package.submodule_search_locations or (), PACKAGES[kind]) if package else ())


def _below(folders: Iterable[str], package: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    for found in pkgutil.iter_modules(folders):
        if found.name.startswith("_"):
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
        raise TypeError(f"{module_name(kind, name)} defines {len(found)} subclasses of {base.__name__}; it needs one")
    return found[0]
