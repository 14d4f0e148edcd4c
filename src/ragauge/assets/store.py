"""Where assets live on this machine, and how they get there whole: locks, atomic folders, manifests, hashes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import progress
from ragauge.io.folders import file_facts, file_sha256, locked, replace
from ragauge.io.home import home as home
from ragauge.io.redaction import redacted_values

MANIFEST = "ragauge-asset.json"  # in every folder that a Store made
FORMAT = 1  # of these manifests; older ones state none
PARSED = ".onnx"  # ends the names of files that are small, and that a native library takes by their word
FileFacts = dict[str, dict[str, Any]]  # relative path -> bytes, sha256


class NotFetchedError(UserError):
    """The asset is not on this machine, and the store was told not to fetch it."""


@dataclass(frozen=True)
class Store:
    """The assets below one folder."""

    home: Path
    progress: bool = True  # say on stderr what is fetched and how far it is
    verify: bool = False  # hash every file of an asset again, where otherwise their sizes are looked at
    offline: bool = False  # fetch nothing: raise NotFetchedError

    def folder(self, area: str, name: str, *spec: Any) -> Path:
        """Where an asset lives: a name that a reader recognises, other for every `spec`."""
        digest = hashlib.sha256(json.dumps([name, *spec]).encode()).hexdigest()[:10]
        readable = re.sub(r"[^\w.=-]+", "-", name).strip("-.")[-80:]
        return self.home / area / f"{readable}-{digest}"

    def build(self, target: Path, make: Callable[[Path], dict[str, Any]]) -> Path:
        """The folder `target`, made once: `make(folder)` fills a hidden folder, which is renamed when it is whole.

        `make` returns what the manifest says beside the size and hash of each file. Several processes may call this
        at the same time: one of them makes the folder, the others wait for it. One that dies leaves nothing in the
        way of the next.
        """

        def fill(folder: Path) -> None:
            write_manifest(folder, make(folder))

        if self.whole(target):
            return target
        if self.offline:
            raise NotFetchedError(f"{target.name}: not fetched yet")
        try:
            with locked(target, lambda: self.say(f"{target.name}: waiting for another process that fetches it")):
                if not self.whole(target):
                    replace(target, fill, has_manifest)
        except OSError as error:
            raise UserError(f"{target}: cannot be written: {error}") from error
        return target

    def converted(
        self, path: Path, name: str, sha256: str, version: int, convert: Callable[[Path, Path], object]
    ) -> Path:
        """The folder, made once, that `convert(path, folder)` fills with a checkpoint of the hub's layout.

        Args:
            name: what the folder's begins with.
            sha256: of what is converted.
            version: of the conversion.
        """

        def make(folder: Path) -> dict[str, Any]:
            self.say(f"converting {path.name} to safetensors")
            convert(path, folder)
            return {"source": path.name, "source_sha256": sha256, "conversion": version}

        return self.build(self.folder("converted", name, sha256, version), make)

    def whole(self, folder: Path) -> bool:
        """Whether every file of the manifest is there, at its size (a graph, and with `verify` all: at its hash)."""
        found = manifest(folder)
        if found is None:
            return False
        version = found.get("format", 0)
        if not (type(version) is int and version <= FORMAT):
            told = f"made by a newer ragauge (format {version}; this one reads up to {FORMAT})"
            raise UserError(f"{folder / MANIFEST}: {told}; use that one, or another RAGAUGE_HOME")
        damaged = [
            n
            for n, facts in found["files"].items()
            if not _matches(folder / n, facts, self.verify or n.endswith(PARSED))
        ]
        if damaged:
            self.say(f"{folder / damaged[0]}: not as it was fetched; made anew")
        return not damaged

    def say(self, text: str) -> None:
        """One line of progress on stderr."""
        if self.progress:
            progress.line(text)


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Mark a folder as one that this program made, with the size and hash of each file and further `facts`."""
    facts = {"format": FORMAT, **redacted_values(facts), "files": contents(folder)}
    (folder / MANIFEST).write_text(json.dumps(facts, indent=1))


def has_manifest(folder: Path) -> bool:
    """Whether this program made a folder, damaged as it may be."""
    return (folder / MANIFEST).is_file()


def manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where it has none that can be read."""
    try:
        data = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    files = data.get("files") if isinstance(data, dict) else None
    return data if isinstance(files, dict) and all(_is_facts(facts) for facts in files.values()) else None


def _is_facts(facts: Any) -> bool:
    return isinstance(facts, dict) and type(facts.get("bytes")) is int and isinstance(facts.get("sha256"), str)


def check_sha256(path: Path, expected: str | None, source: str) -> str:
    """The file's hash; raises UserError naming both where another was expected."""
    found = file_sha256(path)
    if expected is not None and found != expected.lower():
        raise UserError(f"{path.name}: wrong sha256 from {source}: expected {expected}, found {found}")
    return found


def contents(path: Path) -> FileFacts:
    """Size and hash of a file, or of each file in a folder, hashing only what no manifest above it tells."""
    root = path if path.is_dir() else path.parent
    paths = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)
    known = _known(root)
    return {str(p.relative_to(root)): known.get(p) or file_facts(p) for p in paths}


def digest(files: FileFacts) -> str:
    """One hash for all files: of the lines that `sha256sum` prints for them, or the one file's own."""
    if len(files) == 1:
        return str(next(iter(files.values()))["sha256"])
    lines = "".join(f"{facts['sha256']}  {name}\n" for name, facts in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _known(folder: Path) -> dict[Path, dict[str, Any]]:
    """What the manifest of the folder, or of the nearest folder above that has one, says of its files."""
    for parent in (folder, *folder.parents):
        if (found := manifest(parent)) is not None:
            files = {parent / name: facts for name, facts in found["files"].items()}
            return {path: facts for path, facts in files.items() if _matches(path, facts, verify=False)}
    return {}


def _matches(path: Path, facts: dict[str, Any], verify: bool) -> bool:
    with suppress(OSError, ValueError):  # the latter: no name that a file can have
        return path.stat().st_size == facts["bytes"] and (not verify or file_sha256(path) == facts["sha256"])
    return False
