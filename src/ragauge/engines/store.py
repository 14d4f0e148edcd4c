"""Keys and values of documents stored on disk, for documents that are used again and again.

An entry is what one offline call added to a cache. It is found by what the call read: token ids, positions, the
contents of the past that its rows attend to, and the decoder itself. So a hit is bit-identical to recomputing it.
Entries are safetensors files, mapped into memory when they are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.protocol import Row, Span
from ragauge.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """What an entry held; its tokens have been appended to the cache."""

    spans: tuple[Span, ...]  # one a row
    logp: tuple[Tensor, ...]  # as of Extension; empty where it was not asked for
    computing_s: float  # seconds that the call had taken when it was made
    loading_s: float  # seconds that reading the entry took now


class DocumentStore:
    """A folder of entries, bounded in size; the least recently used go first.

    Any number of processes may share the folder: entries appear whole, by renaming, and one that is being read may
    be removed.
    """

    def __init__(self, folder: Path, decoder: str, max_bytes: int) -> None:
        """
        Args:
            decoder: whatever changes its numbers: weights, dtype, device, code, kernels. The versions of torch and its
                number of threads are added here.
            max_bytes: of all entries in the folder.

        Raises:
            UserError: the folder cannot be made.
        """
        self.folder, self.max_bytes = folder, max_bytes
        self.decoder = f"{decoder} {torch.__version__} {torch.get_num_threads()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: documents cannot be kept there: {error.strerror or error}") from error

    def key(self, cache: KVCache, rows: Sequence[Row], tree: bool = False) -> str | None:
        """The name of what a call on `rows` would add to the cache; None where their past has no name.

        Which rows are read together, and whether as a tree, is part of the name: both affect rounding.
        """
        total = hashlib.sha256(f"{self.decoder} {tree}".encode())
        for row in rows:
            past = cache.contents(row.past)
            if past is None:
                return None
            total.update(json.dumps([list(row.ids), list(row.positions), past]).encode())
        return total.hexdigest()

    def load(self, key: str, cache: KVCache, *, logp: bool) -> Stored | None:
        """Append an entry to the cache; None where there is none, or none that holds what is asked for."""
        started, path = time.perf_counter(), self._path(key)
        try:
            with safe_open(path, framework="pt", device="cpu") as entry:
                about = json.loads(entry.metadata()["about"])
                if logp and not about["logp"]:
                    return None
                spans = _append(cache, entry, about["spans"])
                values = entry.get_tensor("logp").split([len(s) - 1 for s in spans]) if logp else ()
            with suppress(FileNotFoundError):  # another process removed it meanwhile; what was read stays
                os.utime(path)  # used just now
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: damaged, made anew (%s)", path, str(error))
            path.unlink(missing_ok=True)
            return None
        cache.named(spans, key)
        return Stored(spans, tuple(values), about["seconds"], time.perf_counter() - started)

    def save(self, key: str, cache: KVCache, spans: Sequence[Span], logp: Sequence[Tensor], seconds: float) -> None:
        """Keep what a call added: `spans`, which lie side by side at the end of the cache.

        A full disk loses the entry, not the answer.
        """
        cache.named(spans, key)
        first, last = min(spans).start, max(spans).stop
        tensors = {name: part[:, first:last].contiguous() for name, part in cache.parts()}
        tensors["positions"] = cache.positions[first:last].contiguous()
        if logp:
            tensors["logp"] = torch.cat(list(logp))
        about = {"spans": [[s.start - first, s.stop - first] for s in spans], "seconds": seconds, "logp": bool(logp)}
        path = self._path(key)
        draft = path.with_suffix(f".{os.getpid()}.partial")
        try:
            save_file(tensors, draft, metadata={"about": json.dumps(about)})
            draft.replace(path)
            self._evict()
        except (SafetensorError, OSError) as error:
            draft.unlink(missing_ok=True)
            log.warning("%s: not kept (%s)", path, str(error))  # the error itself would hold the cache

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"

    def _evict(self) -> None:
        entries = []
        for path in self.folder.iterdir():  # with what killed processes left unfinished
            with suppress(FileNotFoundError):  # another process was faster
                about = path.stat()
                entries.append((about.st_mtime_ns, about.st_size, path))
        excess = sum(size for _, size, _ in entries) - self.max_bytes
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _append(cache: KVCache, entry: safe_open, spans: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
    """Copy an entry's tensors behind the cache's last token; where one does not fit, the cache stays as it was."""
    start, positions = cache.length, entry.get_tensor("positions")
    cache.reserve(len(positions))
    stop = start + len(positions)
    for name, part in cache.parts():
        part[:, start:stop] = _like(entry.get_tensor(name), part)
    cache.positions[start:stop] = positions
    cache.length = stop
    return tuple(Span(start + a, start + b) for a, b in spans)


def _like(found: Tensor, wanted: Tensor) -> Tensor:
    if (found.dtype, found.shape[0], found.shape[2]) != (wanted.dtype, wanted.shape[0], wanted.shape[2]):
        raise ValueError(f"holds {found.dtype} {tuple(found.shape)} for {wanted.dtype} {tuple(wanted.shape)}")
    return found
