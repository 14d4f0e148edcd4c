"""Keys and values of documents that are used repeatedly, stored by offline calls; see
docs/engine.md.

An entry is a segment: the tokens of one row of a call. What it is named after is what its values
depend on, its tokens, their positions and the segments that it attends to, and not the rows that
were read in the same call; so a document is found in any company.
"""

import hashlib
import json
import logging
import os
import re
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.protocol import Extension
from ragauge.engines.spans import Row, Span
from ragauge.errors import UserError
from ragauge.io.files import is_shared

log = logging.getLogger(__name__)

VERSION = "2"  # of an entry and of what its name is made of; files of another one are never read
FILE_NAME = re.compile(r"[0-9a-f]{64}(\.kv|\.[0-9a-f]+\.partial)")  # of files that a store made
# A process fills this part of the remaining room before it measures the folder again; one may run
# on each core.
RESERVED_SHARE = max(4, os.cpu_count() or 4)
CHECKSUM_BYTES = 8  # at the beginning of a file; a safetensors file follows
DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I8": torch.int8,
    "U8": torch.uint8,
}


@dataclass(frozen=True)
class Entry:
    """A segment: the keys, values and positions of its tokens, and their log-probabilities (`logp`)
    where they were computed.
    """

    tensors: Mapping[str, Tensor]
    seconds: float  # that computing it took: its share of the call's, by tokens

    @cached_property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


class DocumentStore:
    """A folder of entries, bounded in size, that any number of processes share; the least recently
    used go first.
    """

    def __init__(self, folder: Path, decoder: str, max_bytes: int) -> None:
        """`decoder` has all that changes its results: weights, dtype, device, code, kernels;
        torch's version and number of threads are added here. Raises UserError if the folder cannot
        be made.
        """
        self.folder = folder
        self.max_bytes = max_bytes
        self.decoder = f"{decoder} {torch.__version__} {torch.get_num_threads()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder}: documents cannot be stored there: {error.strerror or error}"
            ) from error
        self._shared = is_shared(folder)
        self._room = 0  # bytes that may be saved before the folder is measured again

    def key(self, cache: KVCache, row: Row, tree: bool = False) -> str | None:
        """The name of the segment that reading `row` adds to the cache; None where its past has no
        name. The layout of a tree rounds differently and has names of its own.
        """
        past = cache.contents(row.past)
        if past is None:
            return None
        positions = list(map(float, row.positions))
        described = [VERSION, self.decoder, tree, list(row.ids), positions, past]
        if cache.stored_bits:
            described.append(cache.stored_bits)
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()

    def load(
        self, key: str, cache: KVCache, *, logp: bool
    ) -> tuple[Span, Tensor | None, float] | None:
        """Append a segment to the cache; None if there is none, or it lacks the log-probabilities.

        Returns: (its slots, its log-probabilities if `logp`, seconds that computing it took).
        """
        entry = self._get(key)
        if entry is None or (logp and "logp" not in entry.tensors):
            return None
        positions = entry.tensors["positions"]
        cache.reserve(len(positions))
        span = Span(cache.length, cache.length + len(positions))
        cache.length = span.stop
        cache.restore(span, entry.tensors)
        cache.positions[span.start : span.stop] = positions
        cache.name_span(span, key)
        scores = entry.tensors["logp"].clone().to(cache.positions.device) if logp else None
        return span, scores, entry.seconds

    def save(
        self, keys: Sequence[str | None], cache: KVCache, computed: Extension, seconds: float
    ) -> None:
        """Store the segments that one call added to the cache, those with a key."""
        logp = computed.logp or [None] * len(keys)
        a_token = seconds / sum(map(len, computed.spans))
        for key, span, scores in zip(keys, computed.spans, logp, strict=True):
            tensors = cache.store(span)
            if key is None:
                continue
            tensors["positions"] = cache.positions[span.start : span.stop].contiguous()
            if scores is not None:
                tensors["logp"] = scores.contiguous()
            self._put(key, Entry(tensors, a_token * len(span)))
            cache.name_span(span, key)
        self._shrink()

    def _get(self, key: str) -> Entry | None:
        path = self.folder / f"{key}.kv"
        try:
            entry = read_entry(path, mapped=not self._shared)
            # another process removed it meanwhile; what was read stays
            with suppress(FileNotFoundError):
                os.utime(path)  # used just now
            return entry
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s: damaged, computed again (%s)", path, error)
            path.unlink(missing_ok=True)
            return None

    def _put(self, key: str, entry: Entry) -> None:
        """Write an entry; a full disk loses the entry, not the answer."""
        path = self.folder / f"{key}.kv"
        draft = path.with_suffix(f".{uuid.uuid4().hex[:12]}.partial")
        facts = {"version": VERSION, "seconds": repr(entry.seconds)}
        content = safetensors.torch.save(dict(entry.tensors), facts)
        try:
            with draft.open("wb") as file:
                file.write(_checksum(np.frombuffer(content, np.uint8)))
                file.write(content)
            self._room -= len(content)
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            # the error itself would hold the cache
            log.warning("%s: not stored (%s)", path, str(error))

    def _shrink(self) -> None:
        """Evict what is beyond the store's size, once a call: measuring a full folder takes as long
        as loading an entry.
        """
        if self._room >= 0:
            return
        entries = []
        for path in files_of(self.folder):
            with suppress(FileNotFoundError):  # another process was faster
                status = path.stat()
                entries.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in entries) - self.max_bytes
        self._room = max(0, -excess) // RESERVED_SHARE
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            with suppress(OSError):  # of another user, say
                path.unlink(missing_ok=True)
                excess -= size


class MemoryStore(DocumentStore):
    """The same in the memory of this process."""

    def __init__(self, decoder: str, max_bytes: int) -> None:
        self.decoder = decoder
        self.max_bytes = max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # the least recently used first

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return sum(entry.bytes for entry in self._entries.values())

    def _get(self, key: str) -> Entry | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def _put(self, key: str, entry: Entry) -> None:
        copies = {name: tensor.clone() for name, tensor in entry.tensors.items()}
        self._entries[key] = replace(entry, tensors=copies)

    def _shrink(self) -> None:
        while self.bytes > self.max_bytes:
            self._entries.popitem(last=False)


def files_of(folder: Path) -> list[Path]:
    """The entries of a store and the unfinished files of killed processes, without the folder's
    other files.
    """
    return [path for path in folder.glob("*") if FILE_NAME.fullmatch(path.name)]


def damage(path: Path) -> str:
    """The reason why an entry cannot be read; an empty text if it can."""
    try:
        read_entry(path, mapped=False)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def read_entry(path: Path, mapped: bool) -> Entry:
    """An entry of a folder; raises FileNotFoundError if there is none, ValueError if it is not what
    was written. A file that other machines share is not `mapped` into memory: a page that one of
    them removed would end the process.
    """
    if path.stat().st_size <= 2 * CHECKSUM_BYTES:
        raise ValueError("truncated")
    content = np.memmap(path, np.uint8, "c") if mapped else np.fromfile(path, np.uint8)
    body = content[CHECKSUM_BYTES:]
    if content[:CHECKSUM_BYTES].tobytes() != _checksum(body):
        raise ValueError("not the bytes that were written")
    start = 8 + int.from_bytes(body[:8].tobytes(), "little")
    header = json.loads(body[8:start].tobytes())
    facts = header.pop("__metadata__")
    if facts.get("version") != VERSION:
        raise ValueError("of another version of the store")
    data = torch.from_numpy(body[start:])
    tensors = {
        name: data[slice(*about["data_offsets"])].view(DTYPES[about["dtype"]]).view(about["shape"])
        for name, about in header.items()
    }
    return Entry(tensors, float(facts["seconds"]))


def _checksum(body: np.ndarray) -> bytes:
    """A checksum of all bytes: a flipped bit or a page of zeros changes it. Reading memory takes
    longer than computing it.
    """
    words = len(body) // 8 * 8
    total = int(np.add.reduce(body[:words].view(np.uint64), dtype=np.uint64))
    total += zlib.crc32(body[words:].tobytes())
    return (total % (1 << 64)).to_bytes(CHECKSUM_BYTES, "little")
