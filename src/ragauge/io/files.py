"""The cache directory; atomic writing of files, their hashes, and locks between processes."""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import progress

AFFECTS_RESULTS = False

# ends the names of files and folders that a killed process left incomplete
UNFINISHED = ".unfinished"

LOCAL = re.compile(
    r"ext[234]|xfs|btrfs|zfs|f2fs|tmpfs|ramfs|overlay|aufs|squashfs|rootfs|vfat|ntfs3?|apfs|fuseblk|9p"
)


def home() -> Path:
    """Return the cache directory, which all experiments share: `$RAGAUGE_HOME` or
    `~/.cache/ragauge`.
    """
    return Path(os.environ.get("RAGAUGE_HOME") or "~/.cache/ragauge").expanduser().absolute()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(*values: Any) -> str:
    """Return the hash of JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def replace_atomically(path: Path, content: bytes) -> None:
    """Write a file so that every reader, also after a crash, sees the old content or the new one."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, with the folders above it.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, content)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def os_errors_as_user_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system, such as a full disk, into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror or error}") from error
    except Exception as error:
        if not re.search("os error|inline_container", str(error)):  # of safetensors, of torch
            raise
        raise UserError(f"{path}: cannot be written: is its disk full? ({error})") from error


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on, such as ext4."""
    import psutil

    resolved = folder.resolve()
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if resolved.is_relative_to(mount.mountpoint)
    ]
    return (
        max(mounts, key=lambda mount: len(mount.mountpoint)).fstype
        if mounts
        else "unknown file system"
    )


def is_shared(folder: Path) -> bool:
    """Whether other machines may change files in a folder: its file system is not known to be
    local.
    """
    return LOCAL.fullmatch(file_system(folder)) is None


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes away from a file or folder by `.NAME.lock` next to it, which ends with
    its process.

    Raises:
        UserError: another process holds the lock, and `wait` is false.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if not wait:
            raise UserError(f"{path}: another process is writing it") from None
        progress.line(f"{path.name}: waiting for another process that is writing it")
        lock.acquire()
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)  # filelock refuses the lock of a removed file
        lock.release()
