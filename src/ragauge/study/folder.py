"""The folder of a study: only files that a study wrote there, and nobody changed since, are
overwritten.
"""

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import file_sha256, write_file


def check(folder: Path, names: tuple[str, ...], command: str) -> None:
    """Refuse a folder in which one of these files is not as a study left it; `command` runs the
    study that is there.

    Raises:
        UserError: the folder holds files and is no study's, or a file was changed after it was
            written.
    """
    folders.check_replaceable(folder, lambda path: _hashes(path) is not None)
    hashes = _hashes(folder) or {}
    for path in (folder / name for name in names):
        if path.is_file() and file_sha256(path) not in hashes.get(path.name, ()):
            raise UserError(
                f"{path}: was changed after it was written and would be overwritten; "
                f"run it as it is with: {command}; or choose another --out"
            )


def claim(folder: Path) -> None:
    """Mark a folder as a study's before anything is written there: one that is stopped early can be
    started again.
    """
    if _hashes(folder) is None:
        write(folder, {})


def check_writable(folder: Path) -> None:
    """Raise UserError if a folder cannot be written, or its name not be written into files; what is
    not there yet is not left there.
    """
    path = str(folder.resolve())
    if re.search("[\ud800-\udfff]", path):  # bytes that are no letters in this locale
        raise UserError(f"--out: {path!a} is not text in this locale")
    is_new = not folder.exists()
    claim(folder)
    if is_new:
        shutil.rmtree(folder)


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a study's files, so that `check` accepts them after a kill.

    Raises:
        UserError: one cannot be written.
    """
    new = {name: [sha256(content).hexdigest()] for name, content in files.items()}
    old = _hashes(folder) or {}

    def mark(hashes: Mapping[str, list[str]]) -> None:
        write_file(folder / folders.MARK, (json.dumps({"study": hashes}, indent=1) + "\n").encode())

    mark({name: hashes + old.get(name, []) for name, hashes in new.items()})
    for name, content in files.items():
        write_file(folder / name, content)
    mark(new)


def _hashes(folder: Path) -> dict[str, list[str]] | None:
    """The hashes of the files that a study wrote into a folder; None for another folder."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return json.loads((folder / folders.MARK).read_bytes())["study"]
    return None
