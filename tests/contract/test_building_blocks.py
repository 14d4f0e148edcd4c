"""The page of building blocks names all there is, and nothing that is not there."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import ragauge.methods.base

BASES = [
    "ragauge.methods.base",
    *(
        f"ragauge.methods.base.{found.name}"
        for found in pkgutil.iter_modules(ragauge.methods.base.method.__path__)
    ),
    "ragauge.methods.compressors.base",
]


@pytest.fixture(scope="module")
def named(root: Path) -> dict[str, set[str]]:
    """The names of each module's rows in the tables."""
    found: dict[str, set[str]] = {}
    module = ""
    for line in (root / "docs/plugins.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and "`" in cells[1]:
            module = cells[0].strip("`") or module
            found.setdefault(module, set()).update(re.findall(r"`(\w+)`", cells[1]))
    return found


@pytest.mark.parametrize("module", BASES)
def test_the_page_names_what_a_module_defines(module: str, named: dict[str, set[str]]) -> None:
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
