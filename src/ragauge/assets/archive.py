"""Unpacking wheels, zips and tar archives from others: the path, type and size of each member are
checked.
"""

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
from typing import Any

from ragauge.errors import UserError

AFFECTS_RESULTS = False

SUFFIXES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# ragauge runs no code that it fetches
CODE = ("*.py", "*.pyc", "*.so", "*.pyd", "*.dylib", "*.dll", "*.exe")
MAX_RATIO = 100  # unpacked over packed size; text and weights stay below 20, bombs reach thousands
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


def unpack(archive: Path, folder: Path, members: Sequence[str] = ()) -> list[str]:
    """Unpack the members that match a shell pattern (default: all but code); `*` matches slashes
    too. Returns names. Raises UserError: a path outside the folder; a link or device; more than
    `MAX_RATIO` times the archive's own size; a broken archive; no member that matches.
    """
    room = max_bytes = MAX_RATIO * archive.stat().st_size
    names = []
    try:
        for name, size, is_file, opened in _members(archive):
            matches = any(fnmatchcase(name, pattern) for pattern in members or CODE)
            if matches != bool(members):
                continue
            if not is_file:
                raise UserError(
                    f"{archive.name}: member {name!r} is a link or a device, not a file"
                )
            room -= size
            if room < 0:
                raise UserError(
                    f"{archive.name}: unpacks to more than {max_bytes:,} bytes; refused"
                )
            path = PurePosixPath(name)
            if (
                path.is_absolute()
                or ".." in path.parts
                or not path.parts
                or any(c in name for c in "\\:\0")
            ):
                # it would leave the folder
                raise UserError(f"{archive.name}: unsafe member path {name!r}")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("xb") as file, opened() as source:
                shutil.copyfileobj(source, file, 1 << 20)
            names.append(name)
    except UserError:
        raise
    except BROKEN as error:
        raise UserError(f"{archive.name}: cannot be unpacked: {error}") from error
    if not names:
        raise UserError(
            f"{archive.name}: no member matches {', '.join(members) or 'anything but code'}"
        )
    return names


def _members(archive: Path) -> Iterator[tuple[str, int, bool, Callable[[], Any]]]:
    """Yield (name, bytes, whether it is a file, opens it) of the members that are no folders, in
    their order.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                if not info.is_dir():
                    yield info.filename, info.file_size, is_file, partial(packed.open, info)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as packed_tar:
            for entry in packed_tar:
                if not entry.isdir():
                    yield (
                        entry.name,
                        entry.size,
                        entry.isreg(),
                        partial(packed_tar.extractfile, entry),
                    )
    else:
        raise UserError(f"{archive.name}: neither a zip (or wheel) nor a tar archive, or cut short")
