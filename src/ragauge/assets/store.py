"""The cache of assets: complete folders, each with a manifest of sizes and hashes."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import progress
from ragauge.io.files import file_sha256
from ragauge.io.files import home as home
from ragauge.io.folders import file_facts, is_file_facts, replace
from ragauge.io.redaction import redacted_values

AFFECTS_RESULTS = False

# in every folder that a Store made; its modification time is the asset's last use
MANIFEST = "ragauge-asset.json"
Facts = dict[str, Any]  # of a folder or a file
FileFacts = dict[str, Facts]  # relative path -> bytes, sha256


class NotFetchedError(UserError):
    """The asset is not on this machine, and the store is offline."""


@dataclass(frozen=True)
class Store:
    home: Path = field(default_factory=home)
    offline: bool = False  # fetch nothing: raise NotFetchedError

    def folder(self, area: str, name: str, *inputs: Any) -> Path:
        """Return the folder of an asset: its readable name, with a hash of its inputs."""
        digest = hashlib.sha256(json.dumps([name, *inputs]).encode()).hexdigest()[:10]
        readable = re.sub(r"[^\w.=-]+", "-", name).strip("-.")[-80:]
        return self.home / area / f"{readable}-{digest}"

    def build(self, target: Path, make: Callable[[Path], Facts]) -> Path:
        """Make the folder `target` unless it is complete; `make` fills it and returns facts for its
        manifest.
        """
        if self.is_complete(target):
            with suppress(OSError):  # a shared, read-only cache
                os.utime(target / MANIFEST)
            return target
        if self.offline:
            raise NotFetchedError(f"{target.name}: not fetched yet")
        replace(
            target,
            lambda folder: write_manifest(folder, make(folder)),
            has_manifest,
            lambda: self.is_complete(target),
        )
        return target

    def converted(
        self,
        path: Path,
        name: str,
        sha256: str,
        version: int,
        convert: Callable[[Path, Path], object],
    ) -> Path:
        """Make the folder that `convert(path, folder)` fills with a checkpoint in the hub's layout,
        unless it exists. `name` begins the folder's name; `sha256` is of what is converted,
        `version` of the conversion.
        """

        def make(folder: Path) -> Facts:
            progress.line(f"converting {path.name} to the hub's layout")
            convert(path, folder)
            return {"source": path.name, "source_sha256": sha256, "conversion": version}

        return self.build(self.folder("converted", name, sha256, version), make)

    def is_complete(self, folder: Path) -> bool:
        """Whether every file of the folder's manifest is there, at its size."""
        problem = damage(folder, verify=False)
        if problem and has_manifest(folder) and not self.offline:
            progress.line(f"{folder}: {problem}; made anew")
        return not problem


def write_manifest(folder: Path, facts: Facts) -> None:
    """Write the size and hash of each file of a folder, with further `facts`; this marks it as made
    by ragauge.
    """
    described = {**redacted_values(facts), "files": contents(folder)}
    (folder / MANIFEST).write_text(json.dumps(described, indent=1))


def has_manifest(folder: Path) -> bool:
    """Whether ragauge made a folder, which may be damaged."""
    return (folder / MANIFEST).is_file()


def manifest(folder: Path) -> Facts | None:
    """Return the folder's manifest; None where there is none that can be read."""
    try:
        data = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    files = data.get("files") if isinstance(data, dict) else None
    return (
        data
        if isinstance(files, dict) and all(is_file_facts(*entry) for entry in files.items())
        else None
    )


def damage(folder: Path, verify: bool) -> str:
    """Say which file is missing or has another size or, with `verify`, another hash; empty where
    none is damaged.
    """
    stated = manifest(folder)
    if stated is None:
        return f"{MANIFEST} cannot be read"
    for name, facts in stated["files"].items():
        path = folder / name
        if not os.path.isfile(path):  # False for names that no file can have
            return f"{name[:200]} is missing"
        if path.stat().st_size != facts["bytes"] or (
            verify and file_sha256(path) != facts["sha256"]
        ):
            return f"{name} is not as it was fetched or made"
    return ""


def check_sha256(path: Path, expected: str | None, source: str) -> str:
    """Return the file's hash; raise UserError that names both hashes where another was expected."""
    actual = file_sha256(path)
    if expected is not None and actual != expected.lower():
        raise UserError(
            f"{path.name}: wrong sha256 from {source}: expected {expected}, found {actual}"
        )
    return actual


def contents(path: Path) -> FileFacts:
    """Return size and hash of a file, or of each file in a folder; hash only files that no manifest
    above it names.
    """
    root = path if path.is_dir() else path.parent
    paths = (
        [path]
        if path.is_file()
        else sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)
    )
    known = {}
    for parent in (root, *root.parents):
        if (stated := manifest(parent)) is not None:
            known = {parent / name: facts for name, facts in stated["files"].items()}
            break
    same_size = {p: known[p] for p in paths if p in known and known[p]["bytes"] == p.stat().st_size}
    return {str(p.relative_to(root)): same_size.get(p) or file_facts(p) for p in paths}


def digest(files: FileFacts) -> str:
    """Return one hash for all files: of the lines that `sha256sum` prints for them, or the one
    file's own.
    """
    if len(files) == 1:
        return next(iter(files.values()))["sha256"]
    lines = "".join(f"{facts['sha256']}  {name}\n" for name, facts in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
