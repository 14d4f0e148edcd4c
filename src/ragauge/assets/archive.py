"""Unpacking of wheels, zips and tar archives that nobody here wrote: every member's path, type and size is checked."""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from ragauge.errors import UserError

MAX_BYTES = 1 << 40  # of everything unpacked from one archive
CODE = ("*.py", "*.pyc", "*.so", "*.pyd", "*.dylib", "*.dll", "*.exe")


def unpack(archive: Path, folder: Path, members: Sequence[str] = (), max_bytes: int = MAX_BYTES) -> list[str]:
    """Unpacks the members that match any pattern (default: all but code) and returns their names.

    Nothing is imported or executed. Raises UserError for a member with an absolute path, one that climbs out by `..`,
    a link or device, for more than `max_bytes` in all, for a broken archive, and where nothing matches.
    """
    names, left = [], max_bytes
    try:
        for name, size, source in _members(archive, members):
            left -= size
            if left < 0:
                raise UserError(f"{archive.name}: {name}: unpacks to more than {max_bytes:,} bytes")
            _write(source, folder / checked(name, archive), size)
            names.append(name)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{archive.name}: cannot be unpacked: {error}") from error
    if not names:
        raise UserError(f"{archive.name}: no member matches {', '.join(members) or 'anything but code'}")
    return names


def checked(name: str, archive: Path) -> PurePosixPath:
    """A member's path, if it stays below the folder it is unpacked to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise UserError(f"{archive.name}: unsafe member path {name!r}")
    return path


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    if patterns:
        return any(fnmatchcase(name, p) for p in patterns)
    return not any(fnmatchcase(name, p) for p in CODE)


def _members(archive: Path, patterns: Sequence[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and open stream of each wanted member; one that is no plain file raises UserError."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive, patterns)
    elif tarfile.is_tarfile(archive):
        yield from _tar_members(archive, patterns)
    else:
        raise UserError(f"{archive.name}: neither a zip (wheel) nor a tar archive")


def _zip_members(archive: Path, patterns: Sequence[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.is_dir() or not _wanted(info.filename, patterns):
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise UserError(f"{archive.name}: {info.filename}: a link or device, not a plain file")
            with file.open(info) as source:
                yield info.filename, info.file_size, source


def _tar_members(archive: Path, patterns: Sequence[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    with tarfile.open(archive) as file:
        for info in file:
            if info.isdir() or not _wanted(info.name, patterns):
                continue
            source = file.extractfile(info) if info.isreg() else None
            if source is None:
                raise UserError(f"{archive.name}: {info.name}: a link or device, not a plain file")
            yield info.name, info.size, source


def _write(source: IO[bytes], target: Path, size: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        if file.tell() != size:
            raise UserError(f"{target.name}: {file.tell():,} bytes where the archive declares {size:,}")
