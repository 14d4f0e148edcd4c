"""Arrows point downwards only: which part of the package may import which, and what each part drags in."""

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

LEAVES = {"_version", "errors", "plugins", "registry", "text"}

# part -> the parts that it may import besides these
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "plugins": set(),
    "registry": set(),
    "text": set(),
    "io": set(),
    "cost": {"io"},
    "metrics": set(),
    "assets": {"io", "prompts"},
    "prompts": set(),
    "rankers": {"assets"},
    "datasets": {"assets", "io", "metrics", "rankers"},
    "engines": {"cost", "assets", "io"},
    "retrieval": {"assets", "datasets", "io", "rankers"},
    "evidence": {"engines", "io", "prompts"},
    "compressors": {"engines", "prompts"},
    "methods": {"engines", "prompts", "compressors", "cost", "rankers", "evidence"},
    "generation": {"engines", "cost", "retrieval", "io", "assets"},
    "training": {"engines", "generation", "evidence", "prompts", "retrieval", "io", "assets", "datasets", "cost"},
    "config": {
        *("assets", "datasets", "engines", "methods", "retrieval", "training", "generation", "cost", "evidence", "io"),
        *("prompts",),
    },
    "measure": {
        *("generation", "retrieval", "methods", "engines", "prompts", "cost", "io", "datasets", "assets"),
        *("config", "results"),
    },
    "results": {"assets", "io", "metrics", "cost", "datasets", "config", "methods", "generation"},
    "rendering": {"results", "io"},
    "items": {"config", "rendering", "results"},
    "report": {"io", "items", "rendering", "results"},
    "study": {"assets", "datasets", "evidence", "io", "metrics", "prompts", "rankers", "retrieval"},
    "library": {"cost", "datasets", "engines", "measure", "config", "io", "methods", "results"},
    "skeletons": {"io"},
    "testing": set(),
}


def modules() -> list[str]:
    files = sorted((digest.ROOT / digest.PACKAGE).rglob("*.py"))
    names = [".".join(path.relative_to(digest.ROOT).with_suffix("").parts) for path in files]
    return [name.removesuffix(".__init__") for name in names]


def part(module: str) -> str:
    return [*module.split("."), ""][1]


def test_the_page_on_architecture_states_these_rules(root: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", (root / "docs/architecture.md").read_text(), re.MULTILINE)
    assert {layer: set(re.findall(r"`(\w+)`", imports)) for layer, imports in rows} == {
        layer: ALLOWED[layer] for layer in set(ALLOWED) - LEAVES
    }


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(name: str) -> None:
    upwards = [
        f"{module} imports {imported}"
        for module in modules()
        if part(module) == name
        for imported in digest.imports(module)
        if part(imported) not in {name, *ALLOWED[name], *LEAVES, ""}
    ]
    assert not upwards


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither when they run nor for their types."""
    known = set(modules())
    graph: dict[str, set[str]] = {}
    for module in known:
        path = digest.ROOT.joinpath(*module.split("."))
        source = next(p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file())
        nodes = [n for n in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
        named = {(n.module or "", f"{n.module}.{alias.name}") for n in nodes for alias in n.names}
        graph[module] = {name if name in known else home for home, name in named if {home, name} & known} - {module}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_part_takes_private_names_of_another() -> None:
    taken = []
    for path in sorted((digest.ROOT / digest.PACKAGE).rglob("*.py")):
        own = path.relative_to(digest.ROOT / digest.PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ragauge."):
                names = [*node.module.removesuffix("._version").split("."), *(alias.name for alias in node.names)]
                if part(node.module) != own and any(n.startswith("_") and not n.startswith("__") for n in names):
                    taken.append(f"{path}: {node.module}")
    assert not taken


def imported(module: str) -> set[str]:
    """Our modules that one imports, inside functions too but not for the type checker alone; its packages apart."""
    path = digest.ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: set[str] = set()
    waiting: list[ast.AST] = [*ast.parse(path.read_text(encoding="utf-8")).body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        waiting += ast.iter_child_nodes(node)
    return {name for name in found if not module.startswith(f"{name}.")}


def test_no_modules_import_each_other() -> None:
    left = {module: imported(module) - {module} for module in modules()}
    while free := [module for module, needed in left.items() if not needed & left.keys()]:
        for module in free:
            del left[module]
    assert not left


def test_components_of_a_kind_do_not_import_each_other() -> None:
    for kind in registry.PACKAGES:
        siblings = {registry.module_name(kind, name) for name in registry.names(kind)}
        crossed = [
            (s, sorted(digest.imports(s) & siblings - {s})) for s in siblings if digest.imports(s) & siblings - {s}
        ]
        assert not crossed, kind


def test_no_part_is_without_a_rule() -> None:
    entries = {"cli", ""}  # the top, which may import everything
    assert {part(module) for module in modules()} == set(ALLOWED) | entries


HEAVY = {"torch", "transformers", "sklearn", "bm25s", "matplotlib", "pandas", "datasets"}

# what importing a part must not import
FOREIGN = {
    "ragauge.engines": (HEAVY - {"torch", "transformers"}) | {"deepspeed", "faiss", "grpc", "snakemake"},
    "ragauge.items": {"torch", "transformers", "matplotlib", "pandas"},
    "ragauge.config.schema": {"torch", "transformers", "snakemake", "pandas"},
    "ragauge.results.scoring": {"torch", "transformers", "matplotlib", "pandas", "sklearn"},
    "ragauge": HEAVY | {"numpy", "pydantic", "yaml"},
    "ragauge.cli": {"torch", "numpy", "pydantic", "yaml"},
    "ragauge.engines.protocol": HEAVY,
    ", ".join(f"ragauge.methods.{name}" for name in registry.names("method")): HEAVY,  # one start for all of them
}


@pytest.mark.parametrize("module", sorted(FOREIGN), ids=lambda module: module[:30])
def test_libraries_are_imported_where_they_are_used(module: str) -> None:
    code = f"import sys, {module}; print(*({FOREIGN[module]!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_workflow_calls_the_command_line_alone(root: Path) -> None:
    for path in (root / "workflow" / "rules").glob("*.smk"):
        text = path.read_text()
        assert not re.search(r"^\s*(run|script|notebook):", text, re.MULTILINE), path
        assert not re.search(r"\blambda\b", text), path


@pytest.mark.parametrize(
    "script", sorted(Path(__file__).parents[2].glob("benchmarks/*.py")), ids=lambda path: path.stem
)
def test_benchmarks_import_what_there_is(script: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {(node.module or "", alias.name) for node in imports for alias in node.names}
    for module, name in sorted(n for n in names if n[0].startswith("ragauge")):
        assert hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}"), f"{module}.{name}"
