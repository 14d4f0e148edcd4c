"""Pins: what a source must give, in the source (`hf:org/name@REVISION#sha256=HEX`), the catalog or
a lock file.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, StringConstraints

from ragauge.errors import UserError, validating
from ragauge.io.files import write_file
from ragauge.io.jsonl import read_object
from ragauge.io.redaction import redacted

AFFECTS_RESULTS = False

VARIABLE = "RAGAUGE_LOCK"  # the active lock file, for this process and those that it starts
REMOTE = ("hf:", "pypi:", "http://", "https://")  # prefixes of sources that are fetched
MARK = "#sha256="
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")
REVISION = re.compile(r"\w[\w./-]*")
Section = Literal["assets", "datasets", "corpora"]
Checked = TypeVar("Checked", bound=BaseModel)
Sha256 = Annotated[str, StringConstraints(pattern=f"^{HASH.pattern}$")]


class Pin(BaseModel, extra="forbid", frozen=True):
    """The content that a source must give; None: anything."""

    revision: str | None = None  # of a hub repository
    # of the file that is downloaded; of a hub repository, of all its files together
    sha256: Sha256 | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the source gives the same files to everybody."""
        return bool(self.sha256 or COMMIT.fullmatch(self.revision or ""))

    def conflict(self, other: Self) -> str:
        """Say in what two pins contradict each other; empty where they agree, as a branch and a
        commit may.
        """
        for key in ("revision", "sha256"):
            mine = getattr(self, key)
            its = getattr(other, key)
            comparable = key == "sha256" or (
                COMMIT.fullmatch(mine or "") and COMMIT.fullmatch(its or "")
            )
            if mine and its and mine != its and comparable:
                return f"{key} {mine}, not {its}"
        return ""


class Lock(BaseModel, extra="forbid", frozen=True):
    """A lock file: the pin of every source of a configuration."""

    version: Literal[1] = 1
    assets: dict[str, Pin] = {}  # by the name or source that the configuration has
    datasets: dict[str, Pin] = {}  # by the data set's name; the hash is that of its official file
    corpora: dict[str, Pin] = {}  # streams of the hub, by source


def split_pin(source: str) -> tuple[str, Pin]:
    """Return a source without its pin, and the pin.

    Raises:
        UserError: the pin is not spelled as above.
    """
    if not source.startswith(REMOTE):
        return source, Pin()
    start, mark, sha256 = source.partition(MARK)
    if mark and not HASH.fullmatch(sha256):
        raise UserError(f"{redacted(source)}: after {MARK} come 64 digits of 0-9a-f")
    start, at, revision = start.partition("@") if start.startswith("hf:") else (start, "", "")
    if at and not REVISION.fullmatch(revision):
        raise UserError(f"{source}: after @ comes a revision, a commit, tag or branch")
    return start, Pin(revision=revision or None, sha256=sha256 or None)


def lock_path(config: Path) -> Path:
    """Return the path of a configuration's lock file: `exp.lock.json` of `exp.yaml`."""
    return config.with_suffix(".lock.json")


def activate_lock(config: Path) -> None:
    """Have this process, and those that it starts, fetch under the lock of a configuration, if
    there is one.
    """
    path = lock_path(config)
    if path.is_file():
        read(path)
        os.environ[VARIABLE] = str(path.absolute())


def read(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        UserError: it cannot be read or is no lock of this version.
    """
    return validated(Lock, read_object(path), str(path))


def validated(model: type[Checked], data: Any, place: str) -> Checked:
    """Return parsed JSON as a pin or a lock.

    Raises:
        UserError: the first mistake, with the place and the key.
    """
    with validating(place):
        return model.model_validate(data, strict=True)


def write(path: Path, lock: Lock) -> None:
    write_file(path, (lock.model_dump_json(indent=1, exclude_none=True) + "\n").encode())


def locked_pin(section: Section, name: str) -> Pin | None:
    """Return what the active lock says of a source; None where there is no lock, or it lacks the
    source.
    """
    path = os.environ.get(VARIABLE)
    return getattr(read(Path(path)), section).get(name) if path else None


def required_pin(section: Section, name: str, given: Pin) -> Pin:
    """Return what a source must give.

    Raises:
        UserError: `given` contradicts the active lock, or neither pins it.
    """
    path = os.environ.get(VARIABLE)
    locked = locked_pin(section, name)
    if not path or (locked is None and given.is_exact):
        return given
    conflict = given.conflict(locked) if locked else ""
    if locked is None or conflict:
        problem = f"{conflict} as in {path}" if conflict else f"not in {path}"
        raise UserError(
            f"{redacted(name)}: {problem}; to lock it anew: ragauge fetch --config FILE --lock"
        )
    return Pin(revision=locked.revision or given.revision, sha256=locked.sha256 or given.sha256)
