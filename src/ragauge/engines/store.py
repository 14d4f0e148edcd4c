"""Keys and values of documents stored on disk, for documents that are used again and again.

An entry is what one offline call added to a cache. It is found by what the call read: token ids, positions, the
contents of the past that its rows attend to, and the decoder itself. So a hit is bit-identical to recomputing it.
Entries are safetensors files with a checksum. They are mapped into memory when they are read, but on file systems
that other machines share: a page of a file that another machine removed would end the process.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save_file
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.protocol import Row, Span
from ragauge.errors import UserError
from ragauge.io.disks import is_shared

log = logging.getLogger(__name__)

ENTRY = re.compile(r"[0-9a-f]{64}(\.safetensors|\.[0-9a-f]+\.partial)")  # names of files that a store made
SHARES = 4  # of the room left that a process fills before it looks at the folder again: others fill it too


@dataclass(frozen=True)
class StoredEntry:
    """What an entry held; its tokens have been appended to the cache."""

    spans: tuple[Span, ...]  # one a row
    logp: tuple[Tensor, ...]  # as of Extension; empty if it was not asked for
    computing_s: float  # seconds that the call had taken when it was made
    loading_s: float  # seconds that reading the entry took now


class DocumentStore:
    """A folder of entries, bounded in size; the least recently used go first.

    Any number of processes may share the folder: entries appear whole, by renaming, and one that is being read may
    be removed. Nobody waits for the disk: an entry that a power failure tore fails its checksum and is made anew.
    """

    def __init__(self, folder: Path, decoder: str, max_bytes: int) -> None:
        """
        Args:
            decoder: everything that changes its results: weights, dtype, device, code, kernels. The versions of torch
                and its number of threads are added here.
            max_bytes: of all entries in the folder.

        Raises:
            UserError: the folder cannot be made.
        """
        self.folder, self.max_bytes = folder, max_bytes
        self.decoder = f"{decoder} {torch.__version__} {torch.get_num_threads()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: documents cannot be stored there: {error.strerror or error}") from error
        self._shared = is_shared(folder)
        self._room = 0  # bytes that may be saved before the folder is looked at again

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

    def load(self, key: str, cache: KVCache, *, logp: bool) -> StoredEntry | None:
        """Append an entry to the cache; None if there is none, or it lacks what is asked for."""
        started, path = time.perf_counter(), self._path(key)
        try:
            about, tensors = self._read(path)
            if logp and not about["logp"]:
                return None
            _verify(about, tensors)
            values = _per_span(tensors["logp"], about["spans"]) if logp else ()
            seconds = float(about["seconds"])
            spans = _append(cache, tensors, about["spans"])  # last: a damaged entry leaves the cache as it was
            with suppress(FileNotFoundError):  # another process removed it meanwhile; what was read stays
                os.utime(path)  # used just now
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: damaged, computed again (%s)", path, str(error))
            path.unlink(missing_ok=True)
            return None
        cache.named(spans, key)
        return StoredEntry(spans, values, seconds, time.perf_counter() - started)

    def save(self, key: str, cache: KVCache, spans: Sequence[Span], logp: Sequence[Tensor], seconds: float) -> None:
        """Keep what a call added: `spans`, which lie side by side at the end of the cache.

        A full disk loses the entry, not the answer.
        """
        cache.named(spans, key)
        tensors, about = _taken(cache, spans, logp, seconds)
        about |= {"checksum": _checksum(tensors), "header": _header(about, tensors)}
        path = self._path(key)
        draft = path.with_suffix(f".{uuid.uuid4().hex[:12]}.partial")
        try:
            save_file(tensors, draft, metadata={"about": json.dumps(about)})
            self._room -= draft.stat().st_size
            draft.replace(path)
            if self._room < 0:
                self._evict()
        except (SafetensorError, OSError) as error:
            draft.unlink(missing_ok=True)
            log.warning("%s: not stored (%s)", path, str(error))  # the error itself would hold the cache

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What an entry says of itself, and its tensors."""
        if self._shared:
            data = path.read_bytes()
            about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["about"]
            return json.loads(about), load(data)
        with safe_open(path, framework="pt", device="cpu") as entry:
            tensors = {name: entry.get_tensor(name) for name in entry.keys()}  # noqa: SIM118 (not a mapping)
            return json.loads(entry.metadata()["about"]), tensors

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"

    def _evict(self) -> None:
        entries = []
        for path in files_of(self.folder):
            with suppress(FileNotFoundError):  # another process was faster
                about = path.stat()
                entries.append((about.st_mtime_ns, about.st_size, path))
        excess = sum(size for _, size, _ in entries) - self.max_bytes
        self._room = max(0, -excess) // SHARES
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


class MemoryStore(DocumentStore):
    """The same in the memory of this process: the least recently used entries leave it."""

    def __init__(self, decoder: str, max_bytes: int) -> None:
        self.decoder, self.max_bytes = decoder, max_bytes
        self._entries: OrderedDict[str, tuple[dict[str, Tensor], dict[str, Any]]] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Of all entries."""
        return sum(tensor.nbytes for tensors, _ in self._entries.values() for tensor in tensors.values())

    def load(self, key: str, cache: KVCache, *, logp: bool) -> StoredEntry | None:
        """See `DocumentStore.load`."""
        started = time.perf_counter()
        if key not in self._entries or (logp and not self._entries[key][1]["logp"]):
            return None
        self._entries.move_to_end(key)
        tensors, about = self._entries[key]
        spans = _append(cache, tensors, about["spans"])
        values = _per_span(tensors["logp"], about["spans"]) if logp else ()
        cache.named(spans, key)
        return StoredEntry(spans, values, about["seconds"], time.perf_counter() - started)

    def save(self, key: str, cache: KVCache, spans: Sequence[Span], logp: Sequence[Tensor], seconds: float) -> None:
        """See `DocumentStore.save`."""
        cache.named(spans, key)
        tensors, about = _taken(cache, spans, logp, seconds)
        self._entries[key] = {name: tensor.clone() for name, tensor in tensors.items()}, about
        self._entries.move_to_end(key)
        while self.bytes > self.max_bytes:
            self._entries.popitem(last=False)


def files_of(folder: Path) -> list[Path]:
    """The entries of a store, and what killed processes left unfinished; other files of the folder are none of ours."""
    return [path for path in folder.iterdir() if ENTRY.fullmatch(path.name)] if folder.is_dir() else []


def damage(path: Path) -> str:
    """What is wrong with an entry, an empty text where nothing is."""
    try:
        with safe_open(path, framework="pt", device="cpu") as entry:
            about = json.loads(entry.metadata()["about"])
            _verify(about, {name: entry.get_tensor(name) for name in entry.keys()})  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _verify(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if an entry is not what was written; older ones have no checksum, or none of the header."""
    found = {"checksum": _checksum(tensors), "header": _header(about, tensors)}
    if any(name in about and about[name] != value for name, value in found.items()):
        raise ValueError("not the bytes that were written")


def _header(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    """Of what an entry says of itself, and of the names and types of its tensors."""
    said = {name: about[name] for name in ("spans", "seconds", "logp") if name in about}
    return zlib.crc32(
        json.dumps([said, {n: [str(t.dtype), list(t.shape)] for n, t in sorted(tensors.items())}]).encode()
    )


def _per_span(logp: Tensor, spans: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    """Log-probabilities of all tokens of each span but its first."""
    return tuple(logp.split([stop - start - 1 for start, stop in spans]))


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Of all bytes: a flipped bit or a page of zeros changes it. Reading memory takes longer than this."""
    total = 0
    for name in sorted(tensors):
        flat = tensors[name].contiguous().view(-1).view(torch.uint8).numpy()
        words = len(flat) // 8 * 8
        total = zlib.crc32(flat[words:].tobytes(), total) + int(np.add.reduce(flat[:words].view(np.uint64)))
    return total % (1 << 64)


def _taken(
    cache: KVCache, spans: Sequence[Span], logp: Sequence[Tensor], seconds: float
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What an entry holds of the spans, and what is said about it."""
    first, last = min(spans).start, max(spans).stop
    tensors = {name: part[:, first:last].contiguous() for name, part in cache.parts()}
    tensors["positions"] = cache.positions[first:last].contiguous()
    if logp:
        tensors["logp"] = torch.cat(list(logp))
    about = {"spans": [[s.start - first, s.stop - first] for s in spans], "seconds": seconds, "logp": bool(logp)}
    return tensors, about


def _append(cache: KVCache, entry: Mapping[str, Tensor], spans: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
    """Append an entry's tensors to the cache; if one does not fit, the cache is unchanged."""
    start, positions = cache.length, entry["positions"]
    cache.reserve(len(positions))
    stop = start + len(positions)
    for name, part in cache.parts():
        part[:, start:stop] = _like(entry[name], part)
    cache.positions[start:stop] = positions
    cache.length = stop
    return tuple(Span(start + a, start + b) for a, b in spans)


def _like(found: Tensor, wanted: Tensor) -> Tensor:
    if (found.dtype, found.shape[0], found.shape[2]) != (wanted.dtype, wanted.shape[0], wanted.shape[2]):
        raise ValueError(f"holds {found.dtype} {tuple(found.shape)} for {wanted.dtype} {tuple(wanted.shape)}")
    return found
