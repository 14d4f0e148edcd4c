"""Files of faiss: a full disk is an error, reading is by memory map, and nothing is printed to
standard output.
"""

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, error_line

LITTLE_BYTES = 1 << 20  # a disk with less room is full


def metric(name: str) -> int:
    """faiss's number of a metric."""
    import faiss

    return {"l2": faiss.METRIC_L2, "inner_product": faiss.METRIC_INNER_PRODUCT}[name]


def write(index: Any, path: Path) -> None:
    """Write an index.

    Raises:
        OSError: the disk is full, which faiss's own file writer does not report on close.
    """
    import faiss

    try:
        with open(path, "wb") as file:
            writer = faiss.PyCallbackIOWriter(file.write)  # type: ignore[attr-defined]
            faiss.write_index(index, writer)
    except (RuntimeError, SystemError) as error:  # what an OSError becomes on its way through faiss
        code = errno.ENOSPC if shutil.disk_usage(path.parent).free < LITTLE_BYTES else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def read(path: Path, flags: int = 0) -> Any:
    """Return the index of a file.

    Raises:
        UserError: faiss cannot read it.
    """
    import faiss

    try:
        with quiet():
            return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise UserError(f"{path}: faiss cannot read it ({error_line(error, -1)[:200]})") from error


def check_room(folder: Path, needed: int) -> None:
    """Raise OSError if the disk lacks room for a memory-mapped file: else the system kills the
    process.
    """
    if shutil.disk_usage(folder).free < needed:
        raise OSError(
            errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; {needed:,} bytes are needed", str(folder)
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what faiss prints off standard output, whether at once or when C's buffer is flushed."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    saved = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        libc.fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)
