"""Names of a package that are imported when they are first used, so that importing the package stays light."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import ModuleType
from typing import Any


def exported(names: Collection[str], modules: Callable[[], Iterable[ModuleType]]) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Args:
        names: those that the package exports.
        modules: a function of the package that imports the modules with these names, one after another. Imports are
            statements, so that digests follow them.
    """

    def get(name: str) -> Any:
        if name in names:
            for module in modules():
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {modules.__module__!r} has no attribute {name!r}")

    return get
