"""Listing and pruning the cache directory: what ragauge made alone, which manifests and names of
files show.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ragauge.assets import store
from ragauge.errors import UserError
from ragauge.io.files import UNFINISHED, locked

AFFECTS_RESULTS = False

FILES = {  # names that ragauge gives to files, by subfolder of the cache
    "kernels": re.compile(r"compiled-[0-9a-f]{16}\.so|.+-[0-9a-f]{10}\.json"),
    "datasets": re.compile(r"\w+-[0-9a-f]{12}\.jsonl"),
}
DAY_S = 24 * 3600.0


@dataclass(frozen=True)
class CacheEntry:
    """A folder or a file that can be made again."""

    # the subfolder of the cache that it lies in; of an entry of a document store, `documents`
    kind: str
    path: Path
    bytes: int  # of all files
    used: float  # seconds since 1970: the last use

    @classmethod
    def of(cls, kind: str, path: Path) -> Self:
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        is_folder = store.has_manifest(path)
        stat = (path / store.MANIFEST if is_folder else path).stat()
        used = stat.st_mtime if is_folder else max(stat.st_mtime, stat.st_atime)
        return cls(kind, path, sum(file.lstat().st_size for file in files), used)


def entries(home: Path) -> list[CacheEntry]:
    """Return everything in the cache that ragauge made."""
    cached = []
    for path in sorted(home.glob("*/*")):
        # locks and unfinished folders
        if path.is_symlink() or path.parent.is_symlink() or path.name.startswith("."):
            continue
        pattern = FILES.get(path.parent.name)
        if store.has_manifest(path) or (
            pattern and path.is_file() and pattern.fullmatch(path.name)
        ):
            cached.append(CacheEntry.of(path.parent.name, path))
    return cached


def to_prune(
    cached: Iterable[CacheEntry], now: float, older_than_days: float | None, keep_bytes: int | None
) -> list[CacheEntry]:
    """Choose what to remove, the least recently used first: all that was not used for so many days
    before `now`, and of the rest as much as exceeds `keep_bytes`; None: nothing.
    """
    by_use = sorted(cached, key=lambda entry: entry.used)
    longest = float("inf") if older_than_days is None else older_than_days * DAY_S
    chosen = [entry for entry in by_use if now - entry.used > longest]
    rest = by_use[len(chosen) :]
    excess = 0 if keep_bytes is None else sum(entry.bytes for entry in rest) - keep_bytes
    for entry in rest:
        if excess <= 0:
            break
        chosen.append(entry)
        excess -= entry.bytes
    return chosen


def discard(entry: CacheEntry) -> None:
    """Remove an entry, once no other process is making it."""
    if not entry.path.is_dir():
        entry.path.unlink(missing_ok=True)
        return
    with locked(entry.path):
        if not store.has_manifest(entry.path):
            raise UserError(f"{entry.path}: not made by ragauge (no {store.MANIFEST}); not removed")
        doomed = entry.path.with_name(f".{entry.path.name}{UNFINISHED}")  # never seen half removed
        shutil.rmtree(doomed, ignore_errors=True)
        shutil.rmtree(entry.path.rename(doomed))
