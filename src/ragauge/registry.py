"""The file is the registry: `methods/superposition.py` is the method `superposition`.

A component is the one public class that its module defines below the package's base class, or, where the package
keeps functions (metrics), the module itself. Files whose name begins with an underscore are helpers.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from types import ModuleType

from ragauge.errors import unknown

PACKAGES = {
    "method": "ragauge.methods",
    "dataset": "ragauge.datasets",
    "metric": "ragauge.metrics",
    "ranker": "ragauge.rankers",
    "item": "ragauge.paper",
    "verb": "ragauge.verbs",
}


def names(kind: str) -> list[str]:
    """The names of all components of a kind, sorted. Nothing is imported: a list must not wait for torch."""
    package = importlib.util.find_spec(PACKAGES[kind])
    folders = package.submodule_search_locations if package else None
    return sorted(m.name for m in pkgutil.iter_modules(folders or []) if not m.name.startswith("_"))


def module(kind: str, name: str, where: str = "") -> ModuleType:
    """The module of one component; raises UserError with the choices when there is none of that name."""
    known = names(kind)
    if name not in known:
        raise unknown(kind, name, known, where)
    return importlib.import_module(f"{PACKAGES[kind]}.{name}")


def component(kind: str, name: str, base: type, where: str = "") -> type:
    """The one subclass of `base` that the component's module defines."""
    found = [
        value
        for value in vars(module(kind, name, where)).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == f"{PACKAGES[kind]}.{name}"
    ]
    if len(found) != 1:
        raise TypeError(f"{PACKAGES[kind]}.{name} defines {len(found)} subclasses of {base.__name__}; it needs one")
    return found[0]
