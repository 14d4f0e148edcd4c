"""What is on a disk after the power goes, at its worst: the bytes that were waited for, under two sets of names.

A file keeps what it held when it was last synced; one that never was is empty. Names in a folder are those of its last
sync, or, as a file system may be ahead of what it promises, those of the moment. Both images are made before and after
every call that a program makes to sync or to change names.

    Disk(root, monkeypatch, check).watch()    check(folder) is called with each image
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CALLS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")


class Disk:
    """The disk below a folder."""

    def __init__(self, root: Path, images: Path, check: Callable[[Path], None]) -> None:
        """
        Args:
            images: an empty folder for images, outside of the root.
            check: raises if an image is not as it was promised.
        """
        self.root, self.images, self.check = root, images, check
        self.points = 0  # at which the power went
        self._bytes: dict[int, bytes] = {}  # by inode, as of its last sync
        self._names: dict[int, dict[str, int]] = {}  # by inode of a folder: name -> inode, as of its last sync
        self._held: list[int] = []  # descriptors of all that was synced: an inode in use is given to no other file
        self._kinds: dict[int, bool] = {}  # inode -> whether it is a folder
        self._idle = False

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From now on; what is there is on the disk."""
        for folder, _, files in os.walk(self.root):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                self._sync(os.open(path, os.O_RDONLY))
        for name in CALLS:
            patch.setattr(os, name, self._around(getattr(os, name), name == "fsync"))

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def _around(self, call: Callable[..., Any], syncs: bool) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if self._idle:
                return call(*arguments, **named)
            self._lose_power()
            result = call(*arguments, **named)
            if syncs:
                self._sync(os.dup(arguments[0]))
            self._lose_power()
            return result

        return wrapped

    def _sync(self, descriptor: int) -> None:
        self._held.append(descriptor)
        about = os.fstat(descriptor)
        self._kinds[about.st_ino] = stat.S_ISDIR(about.st_mode)
        if stat.S_ISDIR(about.st_mode):
            self._names[about.st_ino] = {entry.name: entry.inode() for entry in os.scandir(descriptor)}
        else:
            self._bytes[about.st_ino] = os.pread(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY), about.st_size, 0)

    def _lose_power(self) -> None:
        self._idle = True
        try:
            for early in (False, True):
                image = self.images / f"{next(_NUMBERS)}"
                self._restore(self.root.stat().st_ino, image, self._now() if early else self._names)
                self.check(image)
                shutil.rmtree(image)
                self.points += 1
        finally:
            self._idle = False

    def _now(self) -> dict[int, dict[str, int]]:
        """The names of this moment in all folders."""
        found = {}
        for folder, _, files in os.walk(self.root):
            found[os.stat(folder).st_ino] = {entry.name: entry.inode() for entry in os.scandir(folder)}
            self._kinds |= {os.lstat(Path(folder, name)).st_ino: False for name in files}
        self._kinds |= dict.fromkeys(found, True)
        return found

    def _restore(self, inode: int, place: Path, names: dict[int, dict[str, int]]) -> None:
        if self._kinds.get(inode, inode in names):
            place.mkdir()
            for name, below in names.get(inode, {}).items():
                self._restore(below, place / name, names)
        else:
            place.write_bytes(self._bytes.get(inode, b""))


_NUMBERS = itertools.count()
