"""Folders that are made whole or not at all, and are known by a manifest: shards, embeddings, indexes.

The manifest names every file with its size and hash, and what the folder was made from, and is sealed with a hash of
itself, so that what it says can be believed. A folder of the same origin
is not made again, so that a killed build goes on where it was; a folder that was cut short, or is of another origin,
is refused in one line.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ragauge.assets.store import file_sha256
from ragauge.errors import UserError
from ragauge.io.records import replace_atomically

MANIFEST = "manifest.json"
FORMAT = 2  # of all folders of this package


def build(target: Path, kind: str, made_from: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> bool:
    """Makes the folder `target` unless it is there already, of the same origin and whole; returns whether it was made.

    Args:
        kind: what the folder is, for its manifest and for messages.
        made_from: JSON values of everything that its content depends on.
        make: fills a folder given and returns what the manifest says besides.

    Raises:
        UserError: it cannot be written, or what `make` raises; what stood there before stays.
    """
    origin = json.loads(json.dumps(made_from))
    if _is_made(target, kind, origin):
        return False
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a build that was killed
        unfinished.mkdir(parents=True)
        facts = dict(make(unfinished))
        manifest = {"format": FORMAT, "kind": kind, "made_from": origin, **facts, "files": _files(unfinished)}
        manifest = json.loads(json.dumps(manifest))  # as it reads back
        manifest["seal"] = text_sha256(manifest)
        replace_atomically(unfinished / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    except OSError as error:
        raise UserError(f"{error.filename or target}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def read(folder: Path, kind: str, verify: bool = False, hashed: Collection[str] = ()) -> dict[str, Any]:
    """The folder's manifest, after a look at the size of every file (with `verify`: at its hash).

    Args:
        hashed: files whose hash is looked at in any case, since their reader believes the sizes that they state.

    Raises:
        UserError: there is none, it is of another kind, or a file is missing, cut short or changed.
    """
    manifest = _manifest(folder, kind)
    for name, facts in manifest["files"].items():
        _check_file(folder / name, facts, kind, verify or name in hashed)
    return manifest


def sha256(folder: Path) -> str:
    """The identity of a folder: the hash of its manifest, which holds those of its files and of what it rests on."""
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
        raise UserError(f"{path}: no manifest of a {kind}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise UserError(f"{path}: a {kind} is needed here, this is {found!r}")
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


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in paths}
