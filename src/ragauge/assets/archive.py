"""Unpacking wheels and zips from others: the path, type and size of each member are checked."""

import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ragauge.errors import UserError

AFFECTS_RESULTS = False

SUFFIXES = (".whl", ".zip")
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# ragauge runs no code that it fetches
CODE = ("*.py", "*.pyc", "*.so", "*.pyd", "*.dylib", "*.dll", "*.exe")
MAX_RATIO = 100  # unpacked over packed size; text and weights stay below 20, bombs reach thousands
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


def unpack(archive: Path, folder: Path, members: Sequence[str] = ()) -> list[str]:
    """Unpack the members that match a shell pattern (default: all but code); `*` matches slashes
    too. Returns names.

    Raises:
        UserError: a path outside the folder; a link or device; more than `MAX_RATIO` times the
            archive's own size; a broken archive; no member that matches.
    """
    if not zipfile.is_zipfile(archive):
        raise UserError(f"{archive.name}: neither a zip nor a wheel, or cut short")
    room = max_bytes = MAX_RATIO * archive.stat().st_size
    names = []
    try:
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                name = info.filename
                matches = any(fnmatchcase(name, pattern) for pattern in members or CODE)
                if info.is_dir() or matches != bool(members):
                    continue
                path = _checked_path(info, archive.name)
                room -= info.file_size
                if room < 0:
                    raise UserError(
                        f"{archive.name}: unpacks to more than {max_bytes:,} bytes; refused"
                    )
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with (folder / path).open("xb") as file, packed.open(info) as source:
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


def _checked_path(info: zipfile.ZipInfo, archive: str) -> PurePosixPath:
    """A member's path. Raises UserError if it is no file, or would leave the folder."""
    name = info.filename
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise UserError(f"{archive}: member {name!r} is a link or a device, not a file")
    path = PurePosixPath(name)
    if (
        path.is_absolute()
        or ".." in path.parts
        or not path.parts
        or any(c in name for c in "\\:\0")
    ):
        raise UserError(f"{archive}: unsafe member path {name!r}")
    return path
