"""Times documents that are not in memory: computed, computed and written to disk, and read back
from there.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ragauge.cost.machine import MAX_LOAD, competing_load
from ragauge.cost.trace import Call
from ragauge.engines.lm import LM
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.measure.timing import clocked
from ragauge.results.times import DocumentTrial

STATE = "the files are dropped from the page cache before they are read, so that they come from the disk"
UNBOUNDED = 1 << 62  # bytes of a store that is temporary


@contextmanager
def storing_documents(lm: LM, folder: Path, max_bytes: int) -> Iterator[Path]:
    """Have the decoder store the documents that it reads offline in a new folder inside this one,
    until the block ends; both are on the disk that is measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=".documents-", dir=folder, ignore_cleanup_errors=True
    ) as stored_in:
        try:
            lm.documents = DocumentStore(Path(stored_in), "timed", max_bytes)
            yield Path(stored_in)
        finally:
            lm.documents = None


def time_documents(
    name: str, prompt: int, prepare: Callable[[], Any], lm: LM, folder: Path
) -> DocumentTrial | None:
    """Time preparing a variant's documents without a store, with an empty one there, and with one
    that has them.

    Returns:
        The seconds; None where nothing is read before the question is known.

    Raises:
        UserError: the disk could not hold the documents.
    """
    with competing_load() as load:
        computing = clocked(lm, prepare)
        if not any(map(_is_storable, computing.trace)):
            return None
        with storing_documents(lm, folder, UNBOUNDED) as store:
            missed = clocked(lm, prepare)
            size = drop_page_cache(store)
            loading = clocked(lm, prepare)
    if any(_is_storable(call) and call.computed_tokens for call in loading.trace):
        raise UserError(f"{name}: its documents could not be stored in {folder}; is the disk full?")
    return DocumentTrial(
        variant=name,
        prompt=prompt,
        computing_s=computing.seconds,
        missed_s=missed.seconds,
        loading_s=loading.seconds,
        bytes=size,
        load_share=load.share,
        disturbed=load.share > MAX_LOAD,
    )


def _is_storable(call: Call) -> bool:
    """Whether a call computes keys and values that a store can hold, not an encoder's vectors."""
    return call.offline and call.macs is None


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
