"""Files that are written whole or not at all, and are on the disk when the call returns."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from ragauge.errors import UserError


def replace_atomically(path: Path, content: bytes) -> None:
    """Write a file so that every reader, and every reader after a crash, sees the old one or the new one whole."""
    unfinished = path.with_name(f"{path.name}.{node()}.unfinished")  # another node may not see the lock
    try:
        with _alone(unfinished) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(unfinished, path)  # while it is locked
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _alone(path: Path) -> IO[bytes]:
    """A file, empty and open for this writer alone; another who writes it at the same time is waited for."""
    while True:
        file = open(path, "ab")  # noqa: SIM115 (returned)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # the other has given it its name
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                return file
        file.close()


def write_file(path: Path, content: bytes) -> None:
    """As `replace_atomically`, with the folders above the file.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, content)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def is_unfinished(path: Path) -> bool:
    """Whether a file's name is one that `replace_atomically` gives to what is not yet whole."""
    return re.fullmatch(r".+\.[0-9a-f]{6}\.unfinished", path.name) is not None


@cache
def node() -> str:
    """Six digits that stand for this machine in names of unfinished files and folders."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
