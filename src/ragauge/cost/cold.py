"""The seconds of documents that are not in memory: computed, computed and kept on disk, and read from there again."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.cost.machine import MAX_LOAD, competing_load
from ragauge.errors import UserError

STATE = "the pages of what is read are dropped from the system's cache first, so that it comes from the disk"


@dataclass(frozen=True)
class Disk:
    """Where documents are kept for the length of a measurement."""

    folder: Path  # on the disk that is meant; what is written there is removed again
    store: Callable[[Path], Any]  # makes a ragauge.engines.store.DocumentStore in a folder

    @contextmanager
    def keep(self, engine: Any) -> Iterator[Path]:
        """Have the decoder keep what it reads offline in a new folder here, until the context ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".documents-", dir=self.folder))
        try:
            engine.documents = self.store(place)
            yield place
        finally:
            engine.documents = None
            shutil.rmtree(place, ignore_errors=True)


def time_documents(name: str, prepare: Callable[[], Any], engine: Any, disk: Disk) -> dict[str, Any] | None:
    """What preparing takes without a store, with an empty one, and with one on disk that has everything.

    Args:
        name: of the variant, for the error.
        prepare: what a method does before the question is known.

    Returns: {"computing_s", "missed_s" (computed and written), "loading_s", "bytes", "load_share", "disturbed"}; None
        where nothing is read before the question is known.

    Raises:
        UserError: the disk did not keep what was written.
    """
    with competing_load() as load:
        computing_s, calls = _timed(prepare, engine)
        if not any(map(_is_kept, calls)):
            return None
        with disk.keep(engine) as place:
            missed_s, _ = _timed(prepare, engine)
            size = forget(place)
            loading_s, calls = _timed(prepare, engine)
    if any(_is_kept(call) and call.loading_s is None for call in calls):
        raise UserError(f"{name}: its documents could not be kept in {disk.folder}; is the disk full?")
    seconds = {"computing_s": computing_s, "missed_s": missed_s, "loading_s": loading_s}
    return {**seconds, "bytes": size, "load_share": load.share, "disturbed": load.share > MAX_LOAD}


def _is_kept(call: Any) -> bool:
    """Whether a store keeps what the call computed: keys and values, not an encoder's vectors."""
    return call.offline and call.macs is None


def _timed(prepare: Callable[[], Any], engine: Any) -> tuple[float, list[Any]]:
    """(seconds of the wall, the calls that were made)."""
    engine.synchronize()
    with engine.tracing() as trace:
        started = time.perf_counter()
        prepare()
        engine.synchronize()
        return time.perf_counter() - started, list(trace)


def forget(folder: Path) -> int:
    """Have the system drop the pages of a folder's files from memory; returns the files' bytes."""
    size = 0
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # pages that are not written yet would stay
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(file.fileno()).st_size
    return size
