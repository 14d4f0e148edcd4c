"""Folders that are made whole or not at all, and the hashes that files and folders are known by.

`replace` and `locked` are the one way to make such a folder. `build` and `read` add a manifest: every file with its
size and hash, and the origin of the folder, sealed with a hash of itself so that it can be trusted. A folder of the
same origin is not made again, so a killed build resumes where it was; a truncated folder, or one of another origin, is
refused in one line.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.records import replace_atomically

MANIFEST = "manifest.json"
FORMAT = 2  # of all folders that `build` makes


# --- files, and any folder ---


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    """Size and hash of a file, as manifests state them."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


@contextmanager
def locked(target: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a folder across processes; the system releases it when its holder dies.

    Args:
        waiting: called when another process holds it, before the wait.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace(target: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder: `fill` writes into a hidden one beside it, which takes its name when it is whole.

    The caller holds the folder's lock. Whatever fails, and whenever the process dies, the target is as it was before
    or complete.
    """
    unfinished, former = (target.with_name(f".{target.name}.{state}") for state in ("unfinished", "former"))
    try:
        _remove(unfinished, former)  # of a process that was killed
        unfinished.mkdir(parents=True)
        fill(unfinished)
        if target.exists():
            target.rename(former)
        unfinished.rename(target)
    finally:
        _remove(unfinished, former)


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


# --- folders with a manifest ---


def build(target: Path, kind: str, made_from: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> bool:
    """Make the folder `target` unless it is there already, of the same origin and whole; return whether it was made.

    Args:
        kind: what the folder is, for its manifest and for messages.
        made_from: JSON values of everything that its content depends on.
        make: fills the folder it is given and returns further entries of the manifest.

    Raises:
        UserError: it cannot be written, or whatever `make` raises; the former folder then stays.
    """
    origin = json.loads(json.dumps(made_from))

    def fill(folder: Path) -> None:
        facts = dict(make(folder))
        files = {path.name: file_facts(path) for path in sorted(folder.iterdir()) if path.is_file()}
        manifest = {"format": FORMAT, "kind": kind, "made_from": origin, **facts, "files": files}
        manifest = json.loads(json.dumps(manifest))  # as it reads back
        manifest["seal"] = text_sha256(manifest)
        replace_atomically(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())

    if _is_made(target, kind, origin):
        return False
    try:
        with locked(target):
            if _is_made(target, kind, origin):  # by another process, while this one waited
                return False
            replace(target, fill)
    except OSError as error:
        raise UserError(f"{error.filename or target}: cannot be written: {error.strerror or error}") from error
    return True


def read(folder: Path, kind: str, verify: bool = False, hashed: str = "") -> dict[str, Any]:
    """The folder's manifest, after checking the size of every file (with `verify`: its hash).

    Args:
        hashed: pattern of files whose hash is always checked, because their reader trusts the sizes that they state.

    Raises:
        UserError: there is none, it is of another kind, or a file is missing, cut short or changed.
    """
    manifest = _manifest(folder, kind)
    for name, facts in manifest["files"].items():
        _check_file(folder / name, facts, kind, verify or fnmatch(name, hashed))
    return manifest


def sha256(folder: Path) -> str:
    """The identity of a folder: the hash of its manifest, which holds those of its files and of its origin."""
    return file_sha256(folder / MANIFEST)


def text_sha256(*values: Any) -> str:
    """The hash of JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _manifest(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{folder}: no {kind} ({MANIFEST}: {error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a manifest of a {kind}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise UserError(f"{path}: must be a {kind}, not {found!r}")
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        raise UserError(f"{path}: {kind} of format {manifest.get('format')!r}; this version reads {FORMAT}: rebuild it")
    if manifest.pop("seal", None) != text_sha256(manifest):
        raise UserError(f"{path}: damaged: not as it was written with its {kind}; rebuild it")
    return manifest


def _check_file(path: Path, facts: Mapping[str, Any], kind: str, verify: bool) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found is None:
        raise UserError(f"{path}: missing from its {kind}; rebuild it")
    if found != facts["bytes"]:
        raise UserError(f"{path}: {found:,} bytes where its {kind} has {facts['bytes']:,}: cut short; rebuild it")
    if verify and file_sha256(path) != facts["sha256"]:
        raise UserError(f"{path}: not the bytes that its {kind} was made with (sha256 differs); rebuild it")


def _is_made(target: Path, kind: str, origin: Mapping[str, Any]) -> bool:
    try:
        return bool(read(target, kind)["made_from"] == origin)
    except (UserError, KeyError):
        return False
