"""Times documents that are not in memory: computed, computed and written to disk, and read back from there."""

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

STATE = "the files are dropped from the page cache before they are read, so that they come from the disk"


@dataclass(frozen=True)
class Disk:
    """Where documents are stored during a measurement."""

    folder: Path  # on the disk that is measured; files written there are removed afterwards
    make_store: Callable[[Path], Any]  # makes a ragauge.engines.store.DocumentStore in a folder

    @contextmanager
    def storing_documents(self, engine: Any) -> Iterator[Path]:
        """Have the decoder store the documents that it reads offline in a new folder here, until the block ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store = Path(tempfile.mkdtemp(prefix=".documents-", dir=self.folder))
        try:
            engine.documents = self.make_store(store)
            yield store
        finally:
            engine.documents = None
            shutil.rmtree(store, ignore_errors=True)


def time_documents(name: str, prepare: Callable[[], Any], engine: Any, disk: Disk) -> dict[str, Any] | None:
    """Time preparing a variant's documents without a store, with an empty one, and with one on disk that holds them.
    Returns: {"computing_s", "missed_s" (computed and written), "loading_s", "bytes", "load_share", "disturbed"}; None
    where nothing is read before the question is known. Raises UserError: the disk could not hold the documents."""
    with competing_load() as load:
        computing_s, calls = _timed(prepare, engine)
        if not any(map(_is_storable, calls)):
            return None
        with disk.storing_documents(engine) as folder:
            missed_s, _ = _timed(prepare, engine)
            size = drop_page_cache(folder)
            loading_s, calls = _timed(prepare, engine)
    if any(_is_storable(call) and call.loading_s is None for call in calls):
        raise UserError(f"{name}: its documents could not be stored in {disk.folder}; is the disk full?")
    seconds = {"computing_s": computing_s, "missed_s": missed_s, "loading_s": loading_s}
    return {**seconds, "bytes": size, "load_share": load.share, "disturbed": load.share > MAX_LOAD}


def _is_storable(call: Any) -> bool:
    """Whether a call computes keys and values that a store can hold, not an encoder's vectors."""
    return call.offline and call.macs is None


def _timed(prepare: Callable[[], Any], engine: Any) -> tuple[float, list[Any]]:
    """(wall-clock seconds, the calls that were made)."""
    engine.synchronize()
    with engine.tracing() as trace:
        started = time.perf_counter()
        prepare()
        engine.synchronize()
        return time.perf_counter() - started, list(trace)


def drop_page_cache(folder: Path) -> int:
    """Drop a folder's files from the system's page cache; returns their bytes."""
    size = 0
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # pages that are not written yet would stay
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(file.fileno()).st_size
    return size
