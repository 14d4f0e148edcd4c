"""Unpacking of wheels, zips and tar archives that others wrote: each member's path, type and size is checked."""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from ragauge.errors import UserError

SUFFIXES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
CODE = ("*.py", "*.pyc", "*.so", "*.pyd", "*.dylib", "*.dll", "*.exe")  # nothing that we fetch is meant to run
MAX_RATIO = 100  # unpacked over packed size; text and weights stay below 20, bombs reach thousands
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)

Member = tuple[str, int, IO[bytes]]  # name, bytes, stream


def unpack(archive: Path, folder: Path, members: Sequence[str] = (), max_bytes: int | None = None) -> list[str]:
    """Unpacks the members that match a pattern of `members` (default: all but code) and returns their names.

    Args:
        members: shell patterns, whose `*` matches slashes too.
        max_bytes: bound on all that is unpacked; default: `MAX_RATIO` times the archive's own size.

    Raises:
        UserError: an absolute member path or one that climbs out by `..`; a link or device; more bytes than the
            bound; a broken archive; no member that matches.
    """
    bound = max_bytes or MAX_RATIO * archive.stat().st_size
    names, left = [], bound
    try:
        for name, size, source in _members(archive, members):
            left -= size
            if left < 0:
                raise UserError(f"{archive.name}: unpacks to more than {bound:,} bytes; refused")
            _write(source, folder / checked(name, archive))
            names.append(name)
    except UserError:
        raise
    except (*BROKEN, ValueError) as error:  # a name that is not in its encoding, or none that a file can have
        raise UserError(f"{archive.name}: cannot be unpacked: {error}") from error
    if not names:
        raise UserError(f"{archive.name}: no member matches {', '.join(members) or 'anything but code'}")
    return names


def checked(name: str, archive: Path) -> PurePosixPath:
    """A member's path, if it stays below the folder that it is unpacked to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or any(c in name for c in "\\:\0"):
        raise UserError(f"{archive.name}: unsafe member path {name!r}")
    return path


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    if patterns:
        return any(fnmatchcase(name, p) for p in patterns)
    return not any(fnmatchcase(name, p) for p in CODE)


def _members(archive: Path, patterns: Sequence[str]) -> Iterator[Member]:
    """Each wanted member; one that is no plain file raises UserError."""
    if zipfile.is_zipfile(archive):
        return _zip_members(archive, patterns)
    if tarfile.is_tarfile(archive):
        return _tar_members(archive, patterns)
    raise UserError(f"{archive.name}: neither a zip (or wheel) nor a tar archive, or cut short")


def _zip_members(archive: Path, patterns: Sequence[str]) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.is_dir() or not _wanted(info.filename, patterns):
                continue
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _no_file(archive, info.filename)
            with file.open(info) as source:  # which yields no more than file_size bytes and checks their CRC
                yield info.filename, info.file_size, source


def _tar_members(archive: Path, patterns: Sequence[str]) -> Iterator[Member]:
    with tarfile.open(archive) as file:
        for info in file:
            if info.isdir() or not _wanted(info.name, patterns):
                continue
            source = file.extractfile(info) if info.isreg() else None
            if source is None:
                raise _no_file(archive, info.name)
            yield info.name, info.size, source


def _no_file(archive: Path, name: str) -> UserError:
    return UserError(f"{archive.name}: member {name!r} is a link or a device, not a file")


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
