"""A digest of the code behind a result: of a module and of every module of ragauge that it imports.

The digest is a parameter of workflow rules and part of records, so a changed module invalidates exactly the results
that depend on it. Comments, docstrings, help texts and layout do not count, nor do modules that cannot change a result
(`EXCLUDED`): a fix to the downloader must not discard hours of answers.

Modules of installed plugin packages count too, with the package's name, version and data files.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import json
import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ragauge import plugins

ROOT = Path(__file__).resolve().parents[2]  # the folder that holds the package
PACKAGE = "ragauge"

# Modules that no result depends on: messages, progress, paths, how assets are fetched (they are identified by hash),
# how a configuration is read and a data type chosen (the resolved settings are recorded with the result).
EXCLUDED = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("cli", "errors", "plugins", "registry", "cost.gpu_load"),
        *("io.digest", "io.files", "io.folders", "io.home", "io.progress", "io.record_writer", "io.redaction"),
        *("assets.archive", "assets.cache", "assets.hub", "assets.pins", "assets.store", "assets.url", "assets.wheel"),
        *(
            f"config{name}"
            for name in (
                "",
                ".checks",
                ".defaults",
                ".dtypes",
                ".loading",
                ".reading",
                ".schema",
                ".specify",
                ".sweeps",
            )
        ),
        "engines.tuning",
        "cli._options",
    )
)

MAX_CACHED = 3000  # sources whose parsed text is cached between processes
_PARSER = f"{sys.version_info} {Path(__file__).read_text(encoding='utf-8')}".encode()  # part of the cache's keys
_STRING = r"""Constant\(value=(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)"""  # as `ast.dump` writes it
_DOCSTRING = re.compile(rf"body=\[Expr\(value={_STRING}\)(?:, )?")
_HELP = re.compile(rf"keyword\(arg='(?:help|description)', value={_STRING}\)(?:, )?")


class _Text(NamedTuple):
    """The parsed text of a module."""

    code: str  # digest of its syntax tree without docstrings
    imports: list[tuple[str, list[str]]]  # as (module, names from it); no names: the module alone


def digest(*modules: str, without: Collection[str] = ()) -> str:
    """Return twelve hexadecimal digits of the code of modules (full names) and of all their imports.

    Args:
        without: modules that cannot change the result, besides `EXCLUDED`.
    """
    return _digest(frozenset(modules), EXCLUDED | frozenset(without))


@cache
def _digest(modules: frozenset[str], without: frozenset[str]) -> str:
    total = hashlib.sha256()
    found = reachable(*modules, without=without)
    for name in sorted(found):
        total.update(f"{name} {_text(name).code}\n".encode())
    for top in sorted({name.partition(".")[0] for name in found} - {PACKAGE}):
        total.update(_package(top).encode())
    return total.hexdigest()[:12]


def reachable(*modules: str, without: Collection[str] = ()) -> set[str]:
    """Return the names of all modules that `modules` import, directly or not, themselves included.

    A package's `__init__` is imported with any module in it. Modules of `without` are left out, unless named, along
    with what they alone import.
    """
    found: set[str] = set()
    pending = list(modules)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(imports(name) - set(without))
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that one module imports, inside functions too but not for the type checker alone."""
    stated = _text(module).imports
    found = {name for imported, names in stated for name in _meant(_absolute(imported, module), names)}
    parents = {name.rpartition(".")[0] for name in (*found, module)} - {"", PACKAGE}
    return frozenset(name for name in found | parents - {module} if _path(name) is not None)


def _absolute(imported: str, module: str) -> str:
    """Return the full name of an imported module: `..b` in `a.c.d` is `a.b`."""
    name = imported.lstrip(".")
    path = _path(module) if name != imported else None
    if path is None:
        return imported
    parts = module.split(".")
    up = len(imported) - len(name) - (path.name == "__init__.py")
    return ".".join([*parts[: len(parts) - up], *([name] if name else [])])


def _meant(module: str, names: list[str]) -> Iterator[str]:
    """Yield the modules an import may mean; `from ragauge.engines import cache` is a module or a name in one."""
    submodules = [f"{module}.{name}" for name in names if _path(f"{module}.{name}")]
    yield from submodules
    if not names or (module != PACKAGE and len(submodules) < len(names)):
        yield module


@cache
def _path(module: str) -> Path | None:
    """Return the file of a module of ragauge or a plugin; None of others."""
    if not _is_own(module):
        return plugins.path_of(module) if plugins.of_module(module) else None
    stem = ROOT.joinpath(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


@cache
def _text(module: str) -> _Text:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"{module}: no such module below {ROOT}")
    source = path.read_bytes()
    known, key = _cached_texts(ROOT), hashlib.sha256(source + _PARSER).hexdigest()
    if key not in known:
        tree = ast.parse(source, filename=str(path))
        code = _HELP.sub("", _DOCSTRING.sub("body=[", ast.dump(tree)))
        known[key] = _Text(hashlib.sha256(code.encode()).hexdigest(), list(_imported(tree.body)))
    return _Text(*known[key])


@cache
def _cached_texts(root: Path) -> dict[str, _Text]:
    """Return parsed sources by hash, from earlier processes: parsing the package takes longer than planning a run."""
    try:
        found = json.loads(_cache_path(root).read_bytes())
    except (OSError, ValueError, RecursionError):
        found = {}
    known = found if isinstance(found, dict) and len(found) < MAX_CACHED else {}
    atexit.register(_write_cache, _cache_path(root), known, len(known))
    return known


def _write_cache(path: Path, known: dict[str, _Text], before: int) -> None:
    """Write the cache if there is anything new and, as with compiled modules, the folder can be written."""
    if len(known) == before or sys.dont_write_bytecode:
        return
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(known))
        unfinished.replace(path)


def _cache_path(root: Path) -> Path:
    return root / PACKAGE / "__pycache__" / "digests.json"


def _imported(statements: list[ast.stmt]) -> Iterator[tuple[str, list[str]]]:
    """Yield the imports in statements and in nested ones; no expression can hold one."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), [alias.name for alias in node.names]
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from _imported(_nested(node))


def _nested(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> list[ast.stmt]:
    fields = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    parts = [*getattr(node, "handlers", []), *getattr(node, "cases", [])]
    return [statement for found in (*fields, *map(_nested, parts)) for statement in found]


@cache
def _package(top: str) -> str:
    """Return the name, the version and the data files of a plugin package, which count besides its modules."""
    found = {f"{plugin.package} {plugin.version}" for plugin in plugins.of_module(top)}
    path = _path(top)
    if path and path.name == "__init__.py":
        files = sorted(filter(_is_data, path.parent.rglob("*")))
        found |= {f"{file.relative_to(path.parent)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files}
    return "\n".join(sorted(found))


def _is_data(file: Path) -> bool:
    return file.is_file() and file.suffix not in (".py", ".pyc") and "__pycache__" not in file.parts


def _is_own(module: str) -> bool:
    return module.split(".")[0] == PACKAGE
