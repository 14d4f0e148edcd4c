"""Unpacking wheels, zips and tar archives from others: the path, type and size of each member are checked."""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ragauge.errors import UserError

SUFFIXES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
CODE = ("*.py", "*.pyc", "*.so", "*.pyd", "*.dylib", "*.dll", "*.exe")  # ragauge runs no code that it fetches
MAX_RATIO = 100  # unpacked over packed size; text and weights stay below 20, bombs reach thousands
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)


class _Member(NamedTuple):
    name: str
    size: int  # bytes
    is_folder: bool
    is_file: bool
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, folder: Path, members: Sequence[str] = ()) -> list[str]:
    """Unpack the members that match a pattern (default: all but code) and return their names.

    Args:
        members: shell patterns, whose `*` matches slashes too.

    Raises:
        UserError: a path outside the folder; a link or device; more than `MAX_RATIO` times the archive's own size; a
            broken archive; no member that matches.
    """
    room = max_bytes = MAX_RATIO * archive.stat().st_size
    names = []
    try:
        for member in _members(archive):
            if member.is_folder or not _is_wanted(member.name, members):
                continue
            if not member.is_file:
                raise UserError(f"{archive.name}: member {member.name!r} is a link or a device, not a file")
            room -= member.size
            if room < 0:
                raise UserError(f"{archive.name}: unpacks to more than {max_bytes:,} bytes; refused")
            target = folder / safe_path(member.name, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file, member.open() as source:  # type: ignore[union-attr]
                shutil.copyfileobj(source, file, 1 << 20)
            names.append(member.name)
    except UserError:
        raise
    except BROKEN as error:
        raise UserError(f"{archive.name}: cannot be unpacked: {error}") from error
    if not names:
        raise UserError(f"{archive.name}: no member matches {', '.join(members) or 'anything but code'}")
    return names


def safe_path(name: str, archive: Path) -> PurePosixPath:
    """Return a member's path. Raises UserError if it leaves the folder that it is unpacked to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or any(c in name for c in "\\:\0"):
        raise UserError(f"{archive.name}: unsafe member path {name!r}")
    return path


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    if patterns:
        return any(fnmatchcase(name, pattern) for pattern in patterns)
    return not any(fnmatchcase(name, pattern) for pattern in CODE)


def _members(archive: Path) -> Iterator[_Member]:
    """Yield the members of a zip or tar archive; each is read before the next is asked for."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                yield _Member(info.filename, info.file_size, info.is_dir(), is_file, partial(packed.open, info))
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as packed_tar:
            for entry in packed_tar:
                read = partial(packed_tar.extractfile, entry)
                yield _Member(entry.name, entry.size, entry.isdir(), entry.isreg(), read)
    else:
        raise UserError(f"{archive.name}: neither a zip (or wheel) nor a tar archive, or cut short")
