"""Arrows point downwards only: which part of the package may import which, and what each part drags
in.
"""

import ast
import graphlib
import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ragauge import registry
from ragauge.io import digest

FILES = sorted((digest.ROOT / digest.PACKAGE).rglob("*.py"))
LEAVES = {"_version", "errors", "options", "plugins", "registry", "text"}

# part -> the parts that it may import besides these, as the page on architecture states them
PAGE = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
ALLOWED = dict.fromkeys(LEAVES, ())
for part_name, below in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE, re.MULTILINE):
    ALLOWED[part_name] = re.findall(r"`(\w+)`", below)


def modules():
    names = [".".join(path.relative_to(digest.ROOT).with_suffix("").parts) for path in FILES]
    return [name.removesuffix(".__init__") for name in names]


def stated(path):
    """The imports of a file, wherever it has them."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.ImportFrom)]


@pytest.fixture(scope="module")
def imports():
    return dict(zip(modules(), map(stated, FILES), strict=True))


def part(module):
    return [*module.split("."), ""][1]


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(name):
    upwards = [
        f"{module} imports {imported}"
        for module in modules()
        if part(module) == name
        for imported in digest.imports(module)
        if part(imported) not in {name, *ALLOWED[name], *LEAVES, ""}
    ]
    assert not upwards


def test_no_modules_import_each_other_in_a_circle(imports):
    """Neither when they run nor for their types; who imports a module imports its packages but
    those of both.
    """
    graph = {}
    for module, nodes in imports.items():
        named = {
            (node.module or "", f"{node.module}.{alias.name}")
            for node in nodes
            for alias in node.names
        }
        needed = {name if name in imports else home for home, name in named}
        needed |= {home for home, _ in named if not module.startswith(f"{home}.")}
        graph[module] = needed & imports.keys() - {module}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_part_takes_private_names_of_another(imports):
    taken = []
    for module, nodes in imports.items():
        for node in nodes:
            if (
                node.module
                and node.module.startswith("ragauge.")
                and part(node.module) != part(module)
            ):
                names = [
                    *node.module.removesuffix("._version").split("."),
                    *(alias.name for alias in node.names),
                ]
                if any(name.startswith("_") and not name.startswith("__") for name in names):
                    taken.append(f"{module}: {node.module}")
    assert not taken


def test_components_of_a_kind_do_not_import_each_other():
    for kind in registry.PACKAGES:
        siblings = {registry.module_name(kind, name) for name in registry.names(kind)}
        crossed = [
            (s, sorted(digest.imports(s) & siblings - {s}))
            for s in siblings
            if digest.imports(s) & siblings - {s}
        ]
        assert not crossed, kind


def test_no_part_is_without_a_rule():
    entries = {"cli", ""}  # the top, which may import everything
    assert {part(module) for module in modules()} == set(ALLOWED) | entries


HEAVY = {"torch", "transformers", "sklearn", "bm25s", "matplotlib", "pandas", "datasets"}

# What importing a part must not import. One process imports them in this order, so that a part
# which takes little may not stand behind one that takes what it must not.
FOREIGN = {
    "ragauge": HEAVY | {"numpy", "pydantic", "yaml"},
    "ragauge.cli": {"torch", "numpy", "pydantic", "yaml"},
    "ragauge.engines.protocol": HEAVY,
    ", ".join(f"ragauge.methods.{name}" for name in registry.names("method")): HEAVY,
    "ragauge.config.schema": {"torch", "transformers", "snakemake", "pandas"},
    "ragauge.results.scoring": {"torch", "transformers", "matplotlib", "pandas", "sklearn"},
    "ragauge.report.items": {"torch", "transformers", "matplotlib", "pandas"},
    "ragauge.engines": (HEAVY - {"torch", "transformers"})
    | {"deepspeed", "faiss", "grpc", "snakemake"},
}


def test_libraries_are_imported_where_they_are_used():
    steps = [
        f"import {asked}; print({asked!r}, *({names!r} & sys.modules.keys()))"
        for asked, names in FOREIGN.items()
    ]
    code = "\n".join(["import sys, ragauge; dir(ragauge)", *steps])
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.splitlines() == list(FOREIGN)


@pytest.mark.parametrize(
    "script", sorted(Path(__file__).parents[2].glob("benchmarks/*.py")), ids=lambda path: path.stem
)
def test_benchmarks_import_what_there_is(script):
    names = {(node.module or "", alias.name) for node in stated(script) for alias in node.names}
    for module, name in sorted(n for n in names if n[0].startswith("ragauge")):
        assert hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}"), (
            f"{module}.{name}"
        )
