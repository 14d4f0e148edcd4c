"""Pieces of a folder that takes hours to make: each is on the disk when it is kept, and the next process goes on.

<beside the folder>/.<name>.pieces/   0.piece, 1.piece, ..., and the mark that says what they are pieces of
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge.io import folders
from ragauge.io.files import replace_atomically, sync_folder

MARK = "ragauge-pieces.json"
_HASH_BYTES = hashlib.sha256().digest_size


class Pieces:
    """The pieces of a folder, by number. Its maker holds the folder's lock."""

    def __init__(self, target: Path, made_from: Mapping[str, Any]) -> None:
        """
        Args:
            target: the folder that is made of them.
            made_from: everything that they depend on, as JSON values; pieces of another origin go.
        """
        self.folder = target.with_name(f".{target.name}.pieces")
        self._origin = (json.dumps(made_from, sort_keys=True) + "\n").encode()

    def open(self) -> None:
        """Have the folder of this origin, with what a killed process kept there.

        Raises:
            UserError: something else stands there.
        """
        mark = self.folder / MARK
        folders.check_replaceable(self.folder, lambda there: (there / MARK).is_file())
        if mark.is_file() and mark.read_bytes() != self._origin:
            folders.remove(self.folder, MARK)
        self.folder.mkdir(parents=True, exist_ok=True)
        sync_folder(self.folder.parent)
        replace_atomically(mark, self._origin)

    def get(self, number: int) -> bytes | None:
        """A piece as it was kept; None if there is none, or it is damaged."""
        try:
            data = self._path(number).read_bytes()
        except OSError:
            return None
        content, told = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
        return content if hashlib.sha256(content).digest() == told else None

    def keep(self, number: int, content: bytes) -> None:
        """Keep a piece; when this returns it is on the disk. Raises OSError if it cannot be written."""
        replace_atomically(self._path(number), content + hashlib.sha256(content).digest())

    def remove(self) -> None:
        """Remove them, once the folder is made."""
        if (self.folder / MARK).is_file():
            folders.remove(self.folder, MARK)
        elif self.folder.is_dir() and not any(self.folder.iterdir()):  # a removal that was cut off at its end
            self.folder.rmdir()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.piece"
