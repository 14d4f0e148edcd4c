"""The page of building blocks names all there is, and nothing that is not there."""

import importlib
import inspect
import pkgutil
import re

import pytest

from ragauge.methods import base

BASES = [
    *(f"ragauge.methods.base.{found.name}" for found in pkgutil.iter_modules(base.__path__)),
    "ragauge.methods.compressors.base",
]


@pytest.fixture(scope="module")
def named(root):
    """The names of each module's list, which stand before a colon."""
    page = (root / "docs/plugins.md").read_text(encoding="utf-8")
    found = {}
    for module, lines in re.findall(r"^- `(ragauge[\w.]+)`\n((?:  .+\n)+)", page, re.MULTILINE):
        names = re.findall(r"^  - ([^:]+):", lines, re.MULTILINE)
        found[module] = set(re.findall(r"`(\w+)`", " ".join(names)))
    return found


@pytest.mark.parametrize("module", BASES)
def test_the_page_names_what_a_module_defines(module, named):
    there = importlib.import_module(module)
    assert all(hasattr(there, name) for name in named[module])
    own = {
        name
        for name, value in vars(there).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module
    }
    assert own <= named[module]
