"""The folder of a training's checkpoints: which one counts, what of it is on the disk, and which are removed.

    <folder>/state.json    what was done until the checkpoint that counts, and the size and hash of its files
    <folder>/step-<n>/     a checkpoint; `ragauge-checkpoint.json` in it marks it as this program's
    <folder>/former/       the state and the checkpoint of other settings, data or code, moved aside

Nothing is ever removed but folders with that mark, and the one that a state of an older version names.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import locked, replace_atomically, sync_folder

VERSION = 1  # of states; older ones state none
STATE, MARK, FORMER = "state.json", "ragauge-checkpoint.json", "former"
_OF_STATE = ("fingerprint", "step", "seconds", "curve")


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints."""

    folder: Path

    @staticmethod
    def tag(step: int) -> str:
        """The name of a step's checkpoint."""
        return f"step-{step}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other trainings out. Raises UserError if one is under way."""
        with locked(self.folder, wait=False):
            yield

    def state(self) -> dict[str, Any]:
        """What was done until the checkpoint that counts; empty if there is none.

        Raises:
            UserError: `state.json` is damaged or another program's.
        """
        return {name: value for name, value in self._read().items() if name in _OF_STATE}

    def verified(self) -> Path:
        """The folder, after every file of the checkpoint that counts was hashed.

        Raises:
            UserError: a file is missing or is not as it was written.
        """
        state = self._read()
        checkpoint = self.folder / self.tag(state["step"])
        for name, facts in state.get("files", {}).items():  # older versions kept none
            path = checkpoint / name
            if not os.path.isfile(path) or folders.file_facts(path) != facts:
                raise UserError(f"{path}: missing or damaged; remove {self.folder} to train anew")
        if not checkpoint.is_dir():
            raise UserError(f"{checkpoint}: missing; remove {self.folder} to train anew")
        return self.folder

    def claim(self, tag: str) -> None:
        """Make and mark the folder that a checkpoint is about to be written to.

        Raises:
            UserError: something else stands there.
        """
        folder = self.folder / tag
        folders.check_replaceable(folder, lambda there: self._is_ours(there, self._read()))
        folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(folder / MARK, b"{}\n")

    def keep(self, tag: str, state: Mapping[str, Any]) -> None:
        """Have a checkpoint count, once all of it is on the disk; then the ones before it go."""
        folder, before = self.folder / tag, self._read()
        folders.sync(folder)
        sync_folder(self.folder)  # the checkpoint's name, before a state names it
        files = {p.relative_to(folder).as_posix(): folders.file_facts(p) for p in folder.rglob("*") if p.is_file()}
        replace_atomically(
            self.folder / STATE, (json.dumps({"version": VERSION, **state, "files": files}) + "\n").encode()
        )
        for other in self.folder.iterdir():
            if other.name != tag and self._is_ours(other, before):
                self._remove(other)

    def move_aside(self) -> Path:
        """Put what is there into the folder `former`, whose own content goes; returns it.

        The state comes last: one without it was being filled when a process died, and is filled further.
        """
        state, former = self._read(), self.folder / FORMER
        folders.check_replaceable(former, lambda there: (there / MARK).is_file())
        mine = [folder for folder in self.folder.iterdir() if self._is_ours(folder, state)]
        if (former / STATE).exists() and mine:
            folders.remove(former, MARK)
        former.mkdir(exist_ok=True)
        replace_atomically(former / MARK, b"{}\n")
        for folder in mine:
            if (former / folder.name).is_dir():  # of a `former` whose removal was cut off
                shutil.rmtree(former / folder.name)
            folder.rename(former / folder.name)
        self._sync(former)
        (self.folder / STATE).replace(former / STATE)
        self._sync(former)
        return former

    def _sync(self, former: Path) -> None:
        sync_folder(former)
        sync_folder(self.folder)

    def _read(self) -> dict[str, Any]:
        path = self.folder / STATE
        try:
            state = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); remove {self.folder} to train anew") from None
        if isinstance(state, dict) and type(state.get("version")) is int and state["version"] > VERSION:
            told = f"a state of version {state['version']}, and this ragauge reads up to {VERSION}"
            raise UserError(f"{path}: {told}; use a newer one, or another folder for checkpoints")
        if not isinstance(state, dict) or any(name not in state for name in _OF_STATE) or not _is_placed(state):
            raise UserError(f"{path}: not of a training; choose another folder for checkpoints")
        return state

    def _is_ours(self, folder: Path, state: Mapping[str, Any]) -> bool:
        """Whether a folder is a checkpoint; those of older versions have no mark, but the state names them."""
        if folder.is_symlink() or not folder.is_dir() or not folder.name.startswith(self.tag(0)[:-1]):
            return False
        cut_off = not any(folder.iterdir())  # a removal that was cut off at its end
        return cut_off or (folder / MARK).is_file() or folder.name == self.tag(state.get("step", -1))

    def _remove(self, folder: Path) -> None:
        if (folder / MARK).is_file():
            folders.remove(folder, MARK)
        else:
            shutil.rmtree(folder)


def _is_placed(state: Mapping[str, Any]) -> bool:
    """Whether a state names a step and files below its checkpoint."""
    step, files = state["step"], state.get("files", {})
    named = isinstance(files, dict) and not any(Path(name).is_absolute() or ".." in Path(name).parts for name in files)
    return named and type(step) is int and 0 <= step < 1 << 60
