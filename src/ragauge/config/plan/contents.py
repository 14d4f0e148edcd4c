"""Hashes of files that users bring: their contents decide what is made again, not their times.

A copy that keeps its times (`cp -p`), or a file of an unpacked archive, may be older than the
results of the file that it replaces.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ragauge.io.files import file_sha256, home, replace_atomically

AFFECTS_RESULTS = False

CACHE = "hashes.json"  # in the cache directory
MAX_CACHED = 20_000  # hashes; the cache begins anew when it has more


def contents(paths: Sequence[str]) -> list[str]:
    """Return the SHA-256 of each file that can be read, in order.

    A hash is cached with the file's path, size, inode and times, so that large weights are read
    once. A file that does not exist yet, as another rule makes it, has none.
    """
    hashes = {}
    cache = home() / CACHE
    cached = _read(cache) if paths else {}
    for path in map(Path, paths):
        with suppress(OSError):
            key = _key(path)
            hashes[key] = cached.get(key) or file_sha256(path)
    if hashes.keys() - cached.keys():
        others = cached if len(cached) < MAX_CACHED else {}
        with suppress(OSError):  # a full disk, or a cache directory that others own
            cache.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(cache, json.dumps(others | hashes).encode())
    return list(hashes.values())


def _key(path: Path) -> str:
    """Return what differs when a file was replaced or written; nobody sets the time of change."""
    state = path.stat()
    facts = (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
    return " ".join(map(str, (*facts, path.absolute())))


def _read(cache: Path) -> dict[str, str]:
    """Return the cached hashes; none where the file is missing or damaged."""
    try:
        cached = json.loads(cache.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return cached if isinstance(cached, dict) else {}
