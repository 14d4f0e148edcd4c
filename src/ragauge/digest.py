"""A digest of the code behind a result: of a module and all of ours that it imports, anywhere in its text.

The workflow gives it to its rules as a parameter, and records hold it: a changed module then makes anew exactly what
rests on it. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the folder that holds the package
PACKAGE = "ragauge"


def digest(*modules: str) -> str:
    """Twelve hexadecimal digits of the code of modules (full names) and of all that they import of ours."""
    total = hashlib.sha256()
    for name in sorted(reachable(*modules)):
        total.update(f"{name} {_code(name)}\n".encode())
    return total.hexdigest()[:12]


def reachable(*modules: str) -> set[str]:
    """The names of our modules that `modules` import, directly or not, themselves included.

    A package's `__init__` is imported with any module in it.
    """
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(imports(name))
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Our modules that one module imports, inside functions too but not for the type checker alone."""
    found = {name for node in _runtime_nodes(_tree(module)) for name in _imported(node, module)}
    parents = {name.rpartition(".")[0] for name in (*found, module)} - {"", PACKAGE}
    return frozenset(name for name in found | parents - {module} if _path(name) is not None)


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _runtime_nodes(node)


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    """Names an import statement may mean; `from ragauge.lm import cache` is a module or a name in one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
        submodules = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in submodules if _path(name))
        if node.module != PACKAGE and not all(_path(name) for name in submodules):
            yield str(node.module)


@cache
def _path(module: str) -> Path | None:
    stem = ROOT.joinpath(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


@cache
def _tree(module: str) -> ast.Module:
    return _parsed(module)


def _parsed(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"{module}: no such module below {ROOT}")
    return ast.parse(path.read_bytes(), filename=str(path))


@cache
def _code(module: str) -> str:
    """Digest of a module's syntax tree without docstrings."""
    tree = _parsed(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
