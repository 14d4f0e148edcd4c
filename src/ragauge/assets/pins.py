"""Pins: what a source must give. Stated in the source itself, in the catalog, or in a lock file beside a configuration.

    hf:org/name@REVISION               a commit, tag or branch of a hub repository
    https://host/file#sha256=HEX       the hash of the file that is downloaded; of pypi: the wheel
    hf:org/name@REVISION#sha256=HEX    the hash of all its files together, as `ragauge fetch --lock` writes it

`exp.lock.json` beside `exp.yaml` is in use once the configuration is read. Whatever is fetched under a lock is what
it says, or is refused in one line; a source that the lock lacks is refused unless it states a hash or a commit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from ragauge.errors import SettingError, UserError
from ragauge.io.files import write_file
from ragauge.io.jsonl import read_object
from ragauge.io.redaction import redacted

VARIABLE = "RAGAUGE_LOCK"  # the lock file in use, of this process and those that it starts
SUFFIX = ".lock.json"
VERSION = 1
FETCHED = ("hf:", "pypi:", "http://", "https://")  # begin sources that others keep
MARK = "#sha256="
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")
REVISION = re.compile(r"\w[\w./-]*")
Section = Literal["assets", "datasets", "corpora"]
Checked = TypeVar("Checked", bound=BaseModel)
Sha256 = Annotated[str, StringConstraints(pattern=f"^{HASH.pattern}$")]


class Pin(BaseModel):
    """What a source must give; a key that is None is left open."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    revision: str | None = None  # of a hub repository
    sha256: Sha256 | None = None  # of the file that is downloaded; of a hub repository, of all its files together

    @property
    def exact(self) -> bool:
        """Whether it gives the same files to everybody."""
        return bool(self.sha256 or COMMIT.fullmatch(self.revision or ""))

    def contradicts(self, other: Pin) -> str:
        """What the two cannot both be, in words; empty where they agree, as a branch and a commit may."""
        pairs = {key: (getattr(self, key), getattr(other, key)) for key in ("revision", "sha256")}
        for key, (mine, its) in pairs.items():
            named = key == "revision" and not (COMMIT.fullmatch(mine or "") and COMMIT.fullmatch(its or ""))
            if mine and its and mine != its and not named:
                return f"{key} {mine}, not {its}"
        return ""


class Lock(BaseModel):
    """A lock file: the pin of every source of a configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = VERSION
    assets: dict[str, Pin] = {}  # by the name or source that the configuration has
    datasets: dict[str, Pin] = {}  # by the data set's name; the hash is that of its official file
    corpora: dict[str, Pin] = {}  # streams of the hub, by source


# --- pins in sources ---


def parted(source: str) -> tuple[str, Pin]:
    """A source without its pin, and the pin. Raises UserError if the pin is not spelled as above."""
    if not source.startswith(FETCHED):
        return source, Pin()
    start, mark, sha256 = source.partition(MARK)
    if mark and not HASH.fullmatch(sha256):
        raise UserError(f"{redacted(source)}: after {MARK} come 64 digits of 0-9a-f")
    _, at, revision = start.partition("@") if start.startswith("hf:") else ("", "", "")
    if at and not REVISION.fullmatch(revision):
        raise UserError(f"{source}: after @ comes a revision, a commit, tag or branch")
    return bare(source), Pin(revision=revision or None, sha256=sha256 or None)


def stated(source: str, revision: str | None, sha256: str | None) -> str:
    """A source with the pin that the keys `revision` and `sha256` of a configuration state.

    Raises:
        SettingError: the source has a pin already, or can have none of that kind.
    """
    given = "revision" if revision else "sha256"
    if not source.startswith(FETCHED):
        told = (
            "only of a source that is fetched; a name of the catalog is pinned by `ragauge fetch --config FILE --lock`"
        )
        raise SettingError(given, f"{revision or sha256!r}: {told}")
    if revision and not source.startswith("hf:"):
        raise SettingError("revision", f"{revision!r}: only of a source hf:org/name; others are pinned by sha256")
    if parted(source)[1] != Pin():
        raise SettingError(given, f"{revision or sha256!r}: {source} states a pin of its own")
    pinned = source + (f"@{revision}" if revision else "") + (f"{MARK}{sha256}" if sha256 else "")
    try:
        parted(pinned)
    except UserError as error:
        raise SettingError(given, str(error)) from None
    return pinned


def bare(source: str) -> str:
    """A source without its pin, whatever that is."""
    if not source.startswith(FETCHED):
        return source
    start = source.partition(MARK)[0]
    return start.partition("@")[0] if start.startswith("hf:") else start


# --- lock files ---


def beside(config: Path) -> Path:
    """The lock file of a configuration: `exp.lock.json` of `exp.yaml`."""
    return config.with_suffix(SUFFIX)


def use(config: Path) -> None:
    """Have this process, and those that it starts, fetch under the lock beside a configuration, if there is one."""
    if (path := beside(config)).is_file():
        read(path)
        os.environ[VARIABLE] = str(path.absolute())


def use_none() -> None:
    """Have this process fetch under no lock."""
    os.environ.pop(VARIABLE, None)


def read(path: Path) -> Lock:
    """A lock file. Raises UserError if it cannot be read, is none, or is one of a newer version."""
    data = read_object(path)
    version = data.get("version", VERSION)
    if type(version) is int and version > VERSION:
        raise UserError(f"{path}: written by a newer ragauge (version {version}; this one reads up to {VERSION})")
    return checked(Lock, data, str(path))


def checked(model: type[Checked], data: Any, place: str) -> Checked:
    """Parsed JSON as a pin or a lock. Raises UserError with the place and the key."""
    try:
        return model.model_validate(data, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{place}: {key}: {first['msg']}") from None


def write(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all."""
    write_file(path, (lock.model_dump_json(indent=1, exclude_none=True) + "\n").encode())


def in_use() -> tuple[Path, Lock] | None:
    """The lock file that this process fetches under, and what it says."""
    path = os.environ.get(VARIABLE)
    return (Path(path), read(Path(path))) if path else None


def locked(section: Section, name: str) -> Pin | None:
    """What the lock in use says of a source; None where there is none, or it lacks the source."""
    found = in_use()
    kept: Pin | None = getattr(found[1], section).get(name) if found else None
    return kept


def pinned(section: Section, name: str, given: Pin) -> Pin:
    """What a source must give, by what is `given` for it and by the lock in use.

    Raises:
        UserError: the two contradict each other, or there is a lock, which lacks it, and nothing exact is given.
    """
    found = in_use()
    if found is None:
        return given
    path, kept = found[0], locked(section, name)
    if kept is None and given.exact:
        return given
    trouble = f"not in {path}" if kept is None else given.contradicts(kept)
    if kept is None or trouble:
        where = "" if kept is None else f" as in {path}"
        raise UserError(f"{redacted(name)}: {trouble}{where}; to lock it anew: ragauge fetch --config FILE --lock")
    return Pin(revision=kept.revision or given.revision, sha256=kept.sha256 or given.sha256)


def pin_of(source: str, manifest: dict[str, Any], digest: str) -> Pin:
    """What was fetched, as a lock states it.

    Args:
        manifest: of the folder that was fetched.
        digest: the hash of all its files together.
    """
    if source.startswith("hf:"):
        found = {"revision": manifest.get("revision"), "sha256": digest}
    else:
        found = {"sha256": manifest.get("archive_sha256")}
    return checked(Pin, found, source)
