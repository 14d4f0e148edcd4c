"""Folders that are complete or absent, with a manifest of the size and hash of every file, sealed
by a hash.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.files import (
    UNFINISHED,
    file_sha256,
    locked,
    os_errors_as_user_errors,
    replace_atomically,
    text_sha256,
)
from ragauge.io.jsonl import JsonObject

AFFECTS_RESULTS = False

MANIFEST = "manifest.json"
# marks ragauge's folders even after Snakemake removed the manifest, the rule's output, for a rerun
MARK = ".ragauge"


def replace(
    target: Path,
    fill: Callable[[Path], object],
    is_replaceable: Callable[[Path], bool],
    is_made: Callable[[], bool] = lambda: False,
) -> bool:
    """Make or replace a folder: `fill` writes into a hidden one, which is renamed when complete.

    If the process dies, the next call restores the former folder or finds the new one.
    `is_replaceable`: ragauge made what is at the target; `is_made`: it is as wanted, perhaps by a
    process that this one waited for.

    Returns whether `fill` was called.

    Raises:
        UserError: something else exists there, or it cannot be written.
    """
    with os_errors_as_user_errors(target), locked(target):
        target = target.resolve() if target.is_symlink() else target  # the link stays
        unfinished, former = _leftovers(target)
        if former.is_dir() and not target.exists():  # the process died between the two renames
            former.rename(target)
        is_pending = not is_made()
        if is_pending:
            check_replaceable(target, is_replaceable)
        for leftover in (unfinished, former):
            shutil.rmtree(leftover, ignore_errors=True)
        if is_pending:
            try:
                unfinished.mkdir(parents=True)
                fill(unfinished)
                if target.exists():
                    target.rename(former)
                unfinished.rename(target)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            shutil.rmtree(former, ignore_errors=True)
    return is_pending


def _leftovers(target: Path) -> tuple[Path, Path]:
    """Return the paths of the unfinished and of the former folder that a killed process leaves."""
    return target.with_name(f".{target.name}{UNFINISHED}"), target.with_name(
        f".{target.name}.former"
    )


def check_replaceable(target: Path, is_replaceable: Callable[[Path], bool]) -> None:
    """Raise UserError if something exists at the target that ragauge did not make; leftovers of a
    kill do not count.
    """
    if target.is_dir():
        if any(path.suffix != UNFINISHED for path in target.iterdir()) and not is_replaceable(
            target
        ):
            raise UserError(
                f"{target}: holds files that ragauge did not make there; move it or choose another folder"
            )
    elif target.exists():
        raise UserError(
            f"{target}: is a file where a folder is made; move it or choose another name"
        )


def build(
    target: Path, kind: str, made_from: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]
) -> bool:
    """Make the folder `target` unless it exists, complete and of the same inputs; return whether it
    was made.

    Args:
        made_from: all that its content depends on, as JSON values.
        make: returns further entries of the manifest.

    Raises:
        UserError: it cannot be written, something else exists there, or `make` raises it; an
            existing folder stays.
    """
    inputs = json.loads(json.dumps(made_from))

    def fill(folder: Path) -> None:
        facts = dict(make(folder))
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): file_facts(path) for path in paths}
        manifest = {"kind": kind, "made_from": inputs, **facts, "files": files}
        manifest = json.loads(json.dumps(manifest))  # as it reads back
        manifest["seal"] = text_sha256(manifest)
        replace_atomically(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
        (folder / MARK).write_text(f"a {kind} of ragauge\n")

    def is_made() -> bool:
        try:
            return read(target, kind).get("made_from") == inputs
        except UserError:
            return False

    if is_made() and not any(path.exists() for path in _leftovers(target)):
        return False
    return replace(target, fill, lambda folder: (folder / MARK).is_file(), is_made)


def read(folder: Path, kind: str | None, verify: bool = False, hashed: str = "") -> JsonObject:
    """Return the folder's manifest after checking the size of every file, or with `verify` its
    hash. `kind`: the expected one; None: any. `hashed`: pattern of files whose hash is always
    checked, as readers trust them.

    Raises:
        UserError: there is no manifest, it is of another kind or format, or a file is missing, cut
            short or changed.
    """
    manifest = _manifest(folder, kind)
    subject = f"its {manifest['kind']}"
    for name, facts in manifest["files"].items():
        path = folder / name
        if not os.path.isfile(path):  # False for names that no file can have
            raise UserError(f"{path}: missing from {subject}; rebuild it")
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise UserError(
                f"{path}: {size:,} bytes where {subject} has {facts['bytes']:,}: cut short; rebuild it"
            )
        if (verify or fnmatch(name, hashed)) and file_sha256(path) != facts["sha256"]:
            raise UserError(
                f"{path}: not the bytes that {subject} was made with (sha256 differs); rebuild it"
            )
    return manifest


def verify(root: Path) -> tuple[int, int]:
    """Hash every file of every manifest below a folder; return how many files and bytes.

    Raises:
        UserError: as `read`.
    """
    files = bytes_read = 0
    for path in sorted(root.rglob(MANIFEST)):
        # unfinished folders
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            stated = read(path.parent, None, verify=True)["files"].values()
            files += len(stated)
            bytes_read += sum(facts["bytes"] for facts in stated)
    return files, bytes_read


def sha256(folder: Path) -> str:
    """Return the identity of a folder: the hash of its manifest, which holds the hashes of its
    files.
    """
    return file_sha256(folder / MANIFEST)


def file_facts(path: Path) -> JsonObject:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def is_file_facts(name: str, facts: Any) -> bool:
    """Whether an entry of a manifest states size and hash of a file inside its folder."""
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    typed = (
        isinstance(facts, dict)
        and type(facts.get("bytes")) is int
        and isinstance(facts.get("sha256"), str)
    )
    return inside and typed


def _manifest(folder: Path, wanted: str | None) -> JsonObject:
    path = folder / MANIFEST
    kind = wanted or "folder of ragauge"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{folder}: no {kind} ({MANIFEST}: {error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a manifest of a {kind}: {error}") from error
    actual = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
    if not isinstance(manifest, dict) or actual != (wanted or actual):
        raise UserError(f"{path}: must be a {kind}, not {actual!r}")
    files = manifest.get("files")
    seal = manifest.pop("seal", None)
    if not isinstance(files, dict) or not all(is_file_facts(*entry) for entry in files.items()):
        raise UserError(
            f"{path}: not a manifest of a {kind}: sizes and hashes of files are missing; rebuild it"
        )
    if seal != text_sha256(manifest):
        raise UserError(
            f"{path}: damaged: its hash differs from the one that it states; rebuild it"
        )
    return manifest
