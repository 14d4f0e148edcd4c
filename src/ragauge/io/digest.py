"""A digest of the code behind a result: of a module and of every module of ragauge that it imports.

Comments, docstrings, help texts and layout do not count, nor do modules that say
`AFFECTS_RESULTS = False` after their imports: messages, progress, paths, how assets are named and
fetched (hashes identify them, the prefixes of encoders included), how a configuration is read and a
data type chosen (the resolved settings are recorded with the result), what a machine is and does. A
fix to the downloader must not discard hours of answers. C files of their packages count, YAML files
with a module's name, and modules of installed plugin packages with the package's name, version and
data files.
"""

import ast
import atexit
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from ragauge import plugins
from ragauge.io.files import file_sha256

AFFECTS_RESULTS = False

ROOT = Path(__file__).resolve().parents[2]  # the folder that holds the package
PACKAGE = "ragauge"

WITHOUT_RESULTS = "AFFECTS_RESULTS = False"  # a line of modules that no result depends on
MAX_CACHED = 3000  # sources whose parsed text is cached between processes
# part of the cache's keys
_PARSER = f"{sys.version_info} {Path(__file__).read_text(encoding='utf-8')}".encode()
# as `ast.dump` writes it
_STRING = r"""Constant\(value=(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)"""
_DOCSTRING = re.compile(rf"body=\[Expr\(value={_STRING}\)(?:, )?")
_HELP = re.compile(rf"keyword\(arg='(?:help|description)', value={_STRING}\)(?:, )?")


@cache
def digest(*modules: str) -> str:
    """Return twelve hexadecimal digits of the code of modules (full names) and all their imports."""
    names = sorted(reachable(*modules))
    lines = [f"{name} {_parsed(name).code}\n" for name in names]
    paths = [path for path in map(_path, names) if path]
    packages = [path.parent for path in paths if path.name == "__init__.py"]
    files = [c for folder in packages for c in sorted(folder.glob("*.[ch]"))]
    files += [data for data in (path.with_suffix(".yaml") for path in paths) if data.is_file()]
    lines += [f"{file.name} {file_sha256(file)}\n" for file in files]
    plugin_packages = sorted({name.partition(".")[0] for name in names} - {PACKAGE})
    lines += map(_package, plugin_packages)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


def reachable(*modules: str) -> set[str]:
    """Return `modules` and all that they import, directly or not, packages included, except modules
    that affect no results, and what is reached through these alone.
    """
    reached = set()
    pending = list(modules)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(each for each in imports(name) if _parsed(each).affects_results)
    return reached


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that one module imports, inside functions too but not for the type checker
    alone.
    """
    path = _path(module)
    package = module if path and path.name == "__init__.py" else module.rpartition(".")[0]
    imported_modules = set()
    lists_modules = any(stated == "pkgutil" for stated, _ in _parsed(module).imports)
    if path and lists_modules and package != PACKAGE:  # of its package, and loads them
        imported_modules |= {f"{package}.{file.stem}" for file in path.parent.glob("[!_]*.py")}
    for stated, names in _parsed(module).imports:
        imported = resolve_name(stated, package)
        submodules = {f"{imported}.{name}" for name in names if _path(f"{imported}.{name}")}
        # `from ragauge.engines import cache` means a module or a name in one
        imported_modules |= submodules
        if not names or (imported != PACKAGE and len(submodules) < len(names)):
            imported_modules.add(imported)
    parents = {name.rpartition(".")[0] for name in (*imported_modules, module)} - {"", PACKAGE}
    return frozenset(
        name for name in imported_modules | parents - {module} if _path(name) is not None
    )


@cache
def _path(module: str) -> Path | None:
    """Return the file of a module of ragauge or a plugin; None of others."""
    if module.partition(".")[0] != PACKAGE:
        return plugins.path_of(module) if plugins.of_module(module) else None
    stem = ROOT.joinpath(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


class _Parsed(NamedTuple):
    code: str  # the digest of a module's syntax tree without docstrings
    imports: list[tuple[str, list[str]]]  # (module, names from it)
    affects_results: bool


@cache
def _parsed(module: str) -> _Parsed:
    """Parse a module, unless its source was parsed before."""
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"{module}: no such module below {ROOT}")
    source = path.read_bytes()
    known = _cached(ROOT)
    key = hashlib.sha256(source + _PARSER).hexdigest()
    if key not in known:
        tree = ast.parse(source, filename=str(path))
        code = _HELP.sub("", _DOCSTRING.sub("body=[", ast.dump(tree)))
        affects = all(ast.unparse(line) != WITHOUT_RESULTS for line in tree.body)
        known[key] = hashlib.sha256(code.encode()).hexdigest(), list(_imported(tree)), affects
    return _Parsed(*known[key])


@cache
def _cached(root: Path) -> dict[str, Any]:
    """Return parsed sources by hash, from earlier processes: parsing the package takes longer than
    planning a run.
    """
    path = root / PACKAGE / "__pycache__" / "digests.json"
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        stored = {}
    known = stored if isinstance(stored, dict) and len(stored) < MAX_CACHED else {}
    before = len(known)

    @atexit.register
    def write() -> None:
        """Write the cache if there is anything new and, as with compiled modules, the folder can be
        written.
        """
        if len(known) > before and not sys.dont_write_bytecode:
            with suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                unfinished = path.with_suffix(f".{os.getpid()}")
                unfinished.write_text(json.dumps(known))
                unfinished.replace(path)

    return known


def _imported(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the imports in a statement and in nested ones; no expression can hold one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), [alias.name for alias in node.names]
        elif not (
            isinstance(node, ast.expr)
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ):
            yield from _imported(node)


@cache
def _package(top: str) -> str:
    """Return the name, the version and the data files of a plugin package, which count besides its
    modules.
    """
    facts = {f"{plugin.package} {plugin.version}" for plugin in plugins.of_module(top)}
    path = _path(top)
    if path and path.name == "__init__.py":
        for file in path.parent.rglob("*"):
            is_code = file.suffix in (".py", ".pyc") or "__pycache__" in file.parts
            if file.is_file() and not is_code:
                facts.add(f"{file.relative_to(path.parent)} {file_sha256(file)}")
    return "\n".join(sorted(facts))
