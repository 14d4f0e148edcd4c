"""The folder of a study, in which nothing is overwritten but what a study wrote there and nobody changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import write_file


def check(folder: Path, names: tuple[str, ...], command: str) -> None:
    """Refuse a folder in which one of these files is not as a study left it.

    Args:
        command: what runs the study that stands there.

    Raises:
        UserError: the folder holds files and is no study's, or a file was changed after it was written.
    """
    folders.check_replaceable(folder, lambda found: _written(found) is not None)
    written = _written(folder) or {}
    for path in (folder / name for name in names):
        if path.is_file() and folders.file_sha256(path) not in written.get(path.name, ()):
            raise UserError(
                f"{path}: was changed after it was written and would be overwritten; run it as it is with: {command}; "
                "or choose another --out"
            )


def claim(folder: Path) -> None:
    """Mark a folder as a study's before anything is written there: one that is stopped early can be started again."""
    if _written(folder) is None:
        _mark(folder, {})


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a study's files. Whenever the process dies, `check` takes the old and the new ones for a study's.

    Raises:
        UserError: one cannot be written.
    """
    new = {name: [sha256(content).hexdigest()] for name, content in files.items()}
    old = _written(folder) or {}
    _mark(folder, {name: hashes + old.get(name, []) for name, hashes in new.items()})
    for name, content in files.items():
        write_file(folder / name, content)
    _mark(folder, new)


def _mark(folder: Path, written: Mapping[str, list[str]]) -> None:
    write_file(folder / folders.MARK, (json.dumps({"study": written}, indent=1) + "\n").encode())


def _written(folder: Path) -> dict[str, list[str]] | None:
    """Hashes of the files that a study wrote into a folder; None for another folder."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found: dict[str, list[str]] = json.loads((folder / folders.MARK).read_bytes())["study"]
        return found
    return None
