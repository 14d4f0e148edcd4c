"""Folders that are made whole or not at all, and the hashes that files and folders are known by.

`replace` and `locked` are the one way to make such a folder, and the only one to replace another: just folders that
this program made, which a mark inside them tells, are ever replaced or removed. `build` and `read` add a manifest:
every file with its size and hash, and the origin of the folder, sealed with a hash of itself so that it can be
trusted. A folder of the same origin is not made again, so a killed build resumes where it was; a truncated folder, or
one of another origin, is refused in one line.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.disks import locks_reach_all, take
from ragauge.io.files import is_unfinished, node, replace_atomically, sync_folder

MANIFEST = "manifest.json"
MARK = ".ragauge"  # beside the manifest, which Snakemake removes before it makes a folder again
UNFINISHED = ".ragauge-unfinished"  # in a folder that `begin` fills
FORMAT = 2  # of all folders that `build` makes; those of format 1 have no seal and are read as well


class NewerError(UserError):
    """What a newer version of this program made, and this one must neither read nor replace."""


@dataclass
class Hashed:
    """What `read` has hashed inside `counting`."""

    files: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.files:,} {'file' if self.files == 1 else 'files'} read, {self.bytes:,} bytes"


_COUNTS: list[Hashed] = []


@contextmanager
def counting() -> Iterator[Hashed]:
    """Count the files that are hashed inside the block, and their bytes."""
    _COUNTS.append(found := Hashed())
    try:
        yield found
    finally:
        _COUNTS.remove(found)


# --- files, and any folder ---


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    """Size and hash of a file, as manifests state them."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


@contextmanager
def locked(target: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a folder across processes; the system releases it when its holder dies.

    Args:
        waiting: called when another process holds it, before the wait.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        try:
            take(file, wait=False)
        except BlockingIOError:
            waiting()
            take(file)
        yield


def replace(target: Path, fill: Callable[[Path], None], ours: Callable[[Path], bool]) -> None:
    """Make a folder: `fill` writes into a hidden one beside it, which takes its name when it is whole and on the disk.

    The caller holds the folder's lock. Whatever fails, and whenever the process dies or the power goes, the target is
    as it was before or complete. What a killed process left unfinished is removed by the next.

    Args:
        ours: whether a folder that stands at the target was made by this program.

    Raises:
        UserError: what stands there was not.
    """
    target = target.resolve() if target.is_symlink() else target  # the link stays
    former = _former(target)
    if former.is_dir() and not target.exists() and ours(former):  # of a process that was killed in `_exchange`
        former.rename(target)
    check_replaceable(target, ours)
    _remove_unfinished(target, ours)
    unfinished = target.with_name(f".{target.name}.{node()}-{uuid.uuid4().hex[:8]}.unfinished")
    try:
        unfinished.mkdir(parents=True)
        fill(unfinished)
        sync(unfinished)
        if target.exists():
            _exchange(unfinished, target, former)
        else:
            unfinished.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_replaceable(target: Path, ours: Callable[[Path], bool]) -> None:
    """Raise UserError where something stands at the target that this program did not make.

    A folder is free that is empty, or has nothing but a file that a killed process had not finished.
    """
    if target.is_dir():
        if any(not is_unfinished(path) for path in target.iterdir()) and not ours(target):
            raise UserError(f"{target}: holds files that ragauge did not make there; move it or choose another folder")
    elif target.exists():
        raise UserError(f"{target}: is a file where a folder is made; move it or choose another name")


def remove(folder: Path, mark: str) -> None:
    """Remove a folder of this program, the file that marks it last: whenever the process dies, the next can go on.

    Raises:
        UserError: it does not hold the mark.
    """
    if not (folder / mark).is_file() or folder.is_symlink():
        raise UserError(f"{folder}: not made by ragauge (no {mark}); not removed")
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != mark:
            path.unlink()
    (folder / mark).unlink()
    folder.rmdir()


def sync(folder: Path) -> None:
    """Wait until every file in a folder, and the folder itself, is on the disk."""
    for root, _, files in os.walk(folder):
        for path in (Path(root, name) for name in files):
            if not path.is_symlink():
                _sync_file(path)
        sync_folder(Path(root))


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _exchange(unfinished: Path, target: Path, former: Path) -> None:
    """Have two folders take each other's names at once, or one after the other where the system cannot."""
    at_once = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if at_once is not None:
        here = -100  # AT_FDCWD: paths count from the current folder
        if at_once(here, os.fsencode(unfinished), here, os.fsencode(target), 2) == 0:  # RENAME_EXCHANGE
            return
        if (code := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(code, os.strerror(code), str(target))
    target.rename(former)
    unfinished.rename(target)
    former.rename(unfinished)


def _former(target: Path) -> Path:
    return target.with_name(f".{target.name}.former")


def _unfinished(target: Path, ours: Callable[[Path], bool]) -> list[Path]:
    """What killed processes left, as the lock tells that the caller holds or takes next: it is nobody's any more.

    Where locks may not reach other nodes, what one of those has begun stays, however old it looks: clocks go wrong.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.([0-9a-f]{{6}})-[0-9a-f]{{8}}\.unfinished")
    beside = target.parent.glob(f".{glob.escape(target.name)}.*.unfinished") if target.parent.is_dir() else ()
    found = [(path, match[1]) for path in beside if (match := pattern.fullmatch(path.name))]
    former = [path for path in (_former(target),) if path.is_dir() and target.exists() and ours(path)]
    reaches = locks_reach_all(target.parent)
    return former + [path for path, of in found if reaches or of == node()]


def _remove_unfinished(target: Path, ours: Callable[[Path], bool]) -> None:
    for path in _unfinished(target, ours):
        shutil.rmtree(path, ignore_errors=True)


# --- folders with a manifest ---


def build(target: Path, kind: str, made_from: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> bool:
    """Make the folder `target` unless it is there already, of the same origin and whole; return whether it was made.

    Args:
        kind: what the folder is, for its manifest and for messages.
        made_from: JSON values of everything that its content depends on.
        make: fills the folder it is given and returns further entries of the manifest.

    Raises:
        UserError: it cannot be written, something else stands there, or whatever `make` raises; what stood there
            then stays.
    """
    origin = json.loads(json.dumps(made_from))

    def fill(folder: Path) -> None:
        facts = dict(make(folder))
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): file_facts(path) for path in paths}
        manifest = {"format": FORMAT, "kind": kind, "made_from": origin, **facts, "files": files}
        manifest = json.loads(json.dumps(manifest))  # as it reads back
        manifest["seal"] = text_sha256(manifest)
        replace_atomically(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
        (folder / MARK).write_text(f"a {kind} of ragauge\n")

    if _is_made(target, kind, origin) and not _unfinished(target, _is_built):
        return False
    try:
        with locked(target):
            if _is_made(target, kind, origin):  # by another process, while this one waited
                _remove_unfinished(target, _is_built)
                return False
            replace(target, fill, _is_built)
    except OSError as error:
        raise UserError(f"{error.filename or target}: cannot be written: {error.strerror or error}") from error
    return True


def read(folder: Path, kind: str | None, verify: bool = False, hashed: str = "") -> dict[str, Any]:
    """The folder's manifest, after checking the size of every file (with `verify`: its hash).

    Args:
        kind: what the folder must be; None: whatever it is.
        hashed: pattern of files whose hash is always checked, because their reader trusts the sizes that they state.

    Raises:
        UserError: there is none, it is of another kind or a newer format, or a file is missing, cut short or changed.
    """
    manifest = _manifest(folder, kind)
    kind = kind or str(manifest["kind"])
    for name, facts in manifest["files"].items():
        _check_file(folder / name, facts, kind, verify or fnmatch(name, hashed))
    return manifest


def verify(root: Path) -> Hashed:
    """Hash every file that a manifest below a folder names; returns what was read. Raises UserError as `read`."""
    with counting() as found:
        for path in sorted(root.rglob(MANIFEST)):
            if not any(part.startswith(".") for part in path.relative_to(root).parts):  # what is unfinished
                read(path.parent, None, verify=True)
    return found


def sha256(folder: Path) -> str:
    """The identity of a folder: the hash of its manifest, which holds those of its files and of its origin."""
    return file_sha256(folder / MANIFEST)


def text_sha256(*values: Any) -> str:
    """The hash of JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _manifest(folder: Path, wanted: str | None) -> dict[str, Any]:
    path, kind = folder / MANIFEST, wanted or "folder of ragauge"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{folder}: no {kind} ({MANIFEST}: {error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a manifest of a {kind}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != (wanted or manifest.get("kind")):
        found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise UserError(f"{path}: must be a {kind}, not {found!r}")
    version = manifest.get("format")
    if type(version) is int and version > FORMAT:
        raise NewerError(f"{path}: {kind} of format {version}, and this ragauge reads up to {FORMAT}; use a newer one")
    if type(version) is not int or version < 1 or not isinstance(manifest.get("files"), dict):
        raise UserError(f"{path}: {kind} of format {version!r}; this version reads 1 to {FORMAT}: rebuild it")
    if not all(_is_facts(name, facts) for name, facts in manifest["files"].items()):
        raise UserError(f"{path}: not a manifest of a {kind}: sizes and hashes of files are missing; rebuild it")
    if version > 1 and manifest.pop("seal", None) != text_sha256(manifest):
        raise UserError(f"{path}: damaged: not as it was written with its {kind}; rebuild it")
    return manifest


def _is_facts(name: str, facts: Any) -> bool:
    """Whether a manifest says size and hash of a file inside its folder."""
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    told = isinstance(facts, dict) and type(facts.get("bytes")) is int and isinstance(facts.get("sha256"), str)
    return inside and told


def _is_built(folder: Path) -> bool:
    """Whether `build` made a folder: damaged, of an older format or without its manifest as it may be."""
    if (folder / MARK).is_file():
        return True
    with suppress(OSError):
        return all(key in (folder / MANIFEST).read_bytes() for key in (b'"kind"', b'"made_from"', b'"files"'))
    return False


def _check_file(path: Path, facts: Mapping[str, Any], kind: str, verify: bool) -> None:
    found = path.stat().st_size if os.path.isfile(path) else None  # False for what no name of a file can be
    if found is None:
        raise UserError(f"{path}: missing from its {kind}; rebuild it")
    if found != facts["bytes"]:
        raise UserError(f"{path}: {found:,} bytes where its {kind} has {facts['bytes']:,}: cut short; rebuild it")
    for count in _COUNTS if verify else ():
        count.files, count.bytes = count.files + 1, count.bytes + found
    if verify and file_sha256(path) != facts["sha256"]:
        raise UserError(f"{path}: not the bytes that its {kind} was made with (sha256 differs); rebuild it")


def _is_made(target: Path, kind: str, origin: Mapping[str, Any]) -> bool:
    try:
        return bool(read(target, kind)["made_from"] == origin)
    except NewerError:
        raise
    except (UserError, KeyError):
        return False


# --- folders that are the user's ---


def begin(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a new folder, or an empty one, which is the user's from then on.

    Until all of it is there, it bears a mark, by which the same command goes on in it after a kill or a full disk.

    Args:
        fill: writes the files, over those that an attempt before left.

    Raises:
        UserError: something else stands there, or another process is filling it.
        OSError: it cannot be written.
    """
    if target.exists() and not target.is_dir():
        check_replaceable(target, lambda _: False)
    target.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks on folders
            _lock_folder(descriptor, target)
        if not (target / UNFINISHED).exists():
            check_replaceable(target, lambda _: False)
        (target / UNFINISHED).touch()
        fill(target)
        sync(target)
        (target / UNFINISHED).unlink()
        sync_folder(target)
    finally:
        os.close(descriptor)


def _lock_folder(descriptor: int, target: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{target}: another process is writing it") from None
