"""Where assets live on this machine, and how they get there whole: locks, atomic folders, manifests, hashes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.errors import UserError

MANIFEST = "manifest.json"


def home() -> Path:
    """The folder of all assets: `$RAGAUGE_HOME`, or `~/.cache/ragauge`."""
    return Path(os.environ.get("RAGAUGE_HOME") or "~/.cache/ragauge").expanduser().absolute()


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, expected: str | None, source: str) -> str:
    """The file's hash; raises UserError, and removes the file, when another was expected."""
    found = file_sha256(path)
    if expected is not None and found != expected.lower():
        path.unlink()
        raise UserError(f"{path.name}: wrong sha256 from {source}: expected {expected}, found {found}; file removed")
    return found


def slug(source: str, *spec: Any) -> str:
    """A folder name that a reader recognises and that differs for every `spec`."""
    digest = hashlib.sha256(json.dumps([source, *spec]).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.=-]+", "-", source).strip("-.")[-80:] + "-" + digest


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Holds the lock of one asset, across processes; a process that dies lets go of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where there is none or a file it names is missing or of another size."""
    try:
        data: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        whole = all((folder / name).stat().st_size == file["bytes"] for name, file in data["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data if whole else None


def build(target: Path, make: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder `target`, made once: `make(folder)` fills a temporary folder, which is renamed when it is whole.

    `make` returns what the manifest says beside the files' sizes and hashes. Several processes may call this at the
    same time; one of them makes the folder, the others wait for it.
    """
    if manifest(target) is not None:
        return target
    with locked(target):
        if manifest(target) is None:
            _replace(target, make)
    return target


def _replace(target: Path, make: Callable[[Path], dict[str, Any]]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        facts = make(staging)
        (staging / MANIFEST).write_text(json.dumps({**facts, "files": _files(staging)}, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": file_sha256(p)} for p in paths}
