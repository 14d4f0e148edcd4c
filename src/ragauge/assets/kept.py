"""What the home holds: assets, converted checkpoints, exports, data sets, and the kernels' tables and libraries.

Only what this program made is seen, and so only that is removed: folders that a manifest marks, and files of the names
that this program gives in the folders where it puts them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ragauge.assets import store
from ragauge.io.folders import file_sha256, locked, remove

FILES = {  # names of ours, by the folder of the home
    "kernels": re.compile(r"compiled-[0-9a-f]{16}\.so|.+-[0-9a-f]{10}(\.dtypes)?\.json"),
    "datasets": re.compile(r"\w+-[0-9a-f]{12}\.jsonl"),
}
DAY_S = 24 * 3600.0


@dataclass(frozen=True)
class Kept:
    """A folder or a file that can be made again."""

    kind: str  # the folder of the home that it lies in; of an entry of a document store, `documents`
    path: Path
    bytes: int  # of all files
    used: float  # seconds since 1970: when it was last read, as far as the file system notes it, or written


def of(kind: str, path: Path) -> Kept:
    """What the file system says of a folder or a file. A manifest counts as written alone: `cache` itself reads it."""
    stats = [(one.name != store.MANIFEST, one.stat()) for one in _files(path)]
    used = max((max(stat.st_atime if read else 0, stat.st_mtime) for read, stat in stats), default=path.stat().st_mtime)
    return Kept(kind, path, sum(stat.st_size for _, stat in stats), used)


def found(home: Path) -> list[Kept]:
    """All that the home holds."""
    return [of(kind, path) for kind, path in _ours(home)]


def _ours(home: Path) -> Iterator[tuple[str, Path]]:
    for area in sorted(home.iterdir()) if home.is_dir() else ():
        for path in sorted(area.iterdir()) if area.is_dir() and not area.is_symlink() else ():
            named = FILES.get(area.name)
            if path.is_symlink() or path.name.startswith("."):  # the latter are locks, and folders not yet whole
                continue
            if store.has_manifest(path) or (named and path.is_file() and named.fullmatch(path.name)):
                yield area.name, path


@contextmanager
def unnoticed(kept: Kept) -> Iterator[None]:
    """Read its files without that counting as use."""
    before = [(path, path.stat()) for path in _files(kept.path)]
    try:
        yield
    finally:
        for path, stat in before:
            with suppress(OSError):
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _files(path: Path) -> list[Path]:
    return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]


def damage(kept: Kept) -> str:
    """What is wrong with an asset's files, each hashed; an empty text where nothing is, or no hash is known."""
    if not kept.path.is_dir():
        return ""
    manifest = store.manifest(kept.path)
    if manifest is None:
        return f"{store.MANIFEST} cannot be read"
    for name, facts in manifest["files"].items():
        path = kept.path / name
        if not os.path.isfile(path):
            return f"{name[:200]} is missing"
        if path.stat().st_size != facts["bytes"] or file_sha256(path) != facts["sha256"]:
            return f"{name} is not as it was fetched or made"
    return ""


def to_prune(kept: Iterable[Kept], now: float, older_than_days: float | None, keep_bytes: int | None) -> list[Kept]:
    """What goes, the least recently used first.

    Args:
        now: seconds since 1970.
        older_than_days: all that was not used for so long; None: nothing for its age.
        keep_bytes: of the rest, the least recently used until so much is left; None: nothing for its size.
    """
    by_use = sorted(kept, key=lambda one: one.used)
    longest = float("inf") if older_than_days is None else older_than_days * DAY_S
    gone = [one for one in by_use if now - one.used > longest]
    rest = by_use[len(gone) :]
    excess = 0 if keep_bytes is None else sum(one.bytes for one in rest) - keep_bytes
    for one in rest:
        if excess <= 0:
            break
        gone.append(one)
        excess -= one.bytes
    return gone


def discard(kept: Kept) -> None:
    """Remove it, once no other process makes it; whoever needs it makes it again."""
    if kept.path.is_dir():
        with locked(kept.path):
            remove(kept.path, store.MANIFEST)
    else:
        kept.path.unlink(missing_ok=True)
