"""The documents of a folder or of one file: every file that can be read, and for every other one
why not.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ragauge.datasets.base.dataset import Document
from ragauge.errors import UserError
from ragauge.io import jsonl
from ragauge.io.progress import bar
from ragauge.study import formats
from ragauge.study.errors import UnreadableError
from ragauge.study.reader_process import ReaderProcess
from ragauge.text import clean

RECORDS = (".jsonl", ".jsonl.gz")
SUFFIXES = (*formats.READERS, *RECORDS)
MAX_NAMED = 10  # skipped files that are named on the screen; the study's file names all

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceDocuments:
    """The documents of a folder, and the files that could not be read."""

    # titled as they title themselves, else by their path without suffix
    documents: tuple[Document, ...]
    # path in the folder, also without suffix -> title
    names: dict[str, str] = field(default_factory=dict)
    # one of NOTES -> path in the folder -> the note; not_read -> suffix -> files of kinds that
    # nothing here reads
    unread: dict[str, jsonl.JsonObject] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """A file of the folder: its documents, and what of it was not read."""

    name: str  # its path in the folder
    documents: Sequence[Document]
    notes: jsonl.JsonObject  # one of NOTES -> the note; falsy: there is none


# why a file was skipped; what of it is missing; of a page, the share of its characters that are no
# content; what was left out, as being no content
NOTES = ("skipped", "read_in_part", "left_out", "omissions")


def read(place: Path) -> SourceDocuments:
    """Read the documents of a folder, at any depth, in the order of the files' names, or of a file.

    A file without text that can be read is skipped and named, so that one scan among a thousand
    manuals does not end a study. JSON lines are data, in which a mistake is refused. Hidden files
    are ignored.

    Raises:
        UserError: no such place, nothing in it that can be read, a mistake in JSON lines, a library
            is missing.
    """
    if not place.exists():
        raise UserError(f"--documents: {place}: no such folder or file")
    folder = place if place.is_dir() else place.parent
    files = _visible_files(place) if place.is_dir() else [place]
    paths = [path for path in files if path.name.lower().endswith(SUFFIXES)]
    short = _short_names(folder, paths)
    bar_of_files = bar("reading documents", "file", iterable=paths, delay=2)
    with ReaderProcess() as reader:
        read = [_read_file(reader, path, _name(folder, path), short) for path in bar_of_files]
    unread = {
        note: {file.name: file.notes[note] for file in read if file.notes.get(note)}
        for note in NOTES
    }
    if not any(file.documents for file in read):
        raise UserError(f"--documents: {_nothing(place, folder, unread['skipped'])}")
    _warn("skipped", folder, unread["skipped"])
    _warn("read in part:", folder, unread["read_in_part"])
    unread["not_read"] = Counter(_kind(path) for path in files if path not in paths)
    if unread["not_read"]:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in unread["not_read"].items())
        logger.warning(
            "not read, being of other kinds: %s; convert them to %s",
            counts,
            ", ".join(formats.READERS),
        )
    documents, names = _titled(read, short)
    return SourceDocuments(tuple(documents), names, unread)


def _visible_files(folder: Path) -> list[Path]:
    hidden = (".", "~$")  # the latter are Word's locks
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
    ]


def _name(folder: Path, path: Path) -> str:
    """A file's path in the folder as text: bytes that are not UTF-8 as escapes, as `\\xfc`."""
    return os.fsencode(path.relative_to(folder)).decode(errors="backslashreplace")


def _kind(path: Path) -> str:
    """The end of a file's name, as `.txt.gz`, or its name."""
    ends = path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]
    return "".join(ends).lower() or path.name


def _read_file(
    reader: ReaderProcess, path: Path, name: str, short: Mapping[str, str]
) -> SourceFile:
    if path.name.lower().endswith(RECORDS):
        documents, empty = _records(path, short[name])
        return SourceFile(name, documents, {"read_in_part" if documents else "skipped": empty})
    try:
        content = reader.read(path)
    except UnreadableError as error:
        return SourceFile(name, (), {"skipped": str(error)})
    notes = {
        "read_in_part": content.warning,
        "left_out": round(content.left_out, 3),
        "omissions": content.omissions,
    }
    return SourceFile(name, [Document(content.title or short[name], content.text)], notes)


def _warn(what: str, folder: Path, reasons: Mapping[str, str]) -> None:
    for name, reason in islice(reasons.items(), MAX_NAMED):
        logger.warning("%s %s: %s", what, folder / name, reason)
    more = len(reasons) - MAX_NAMED
    if more > 0:
        logger.warning("%s %d more files, which retrieval.json of the study names", what, more)


def _titled(
    files: Sequence[SourceFile], short: Mapping[str, str]
) -> tuple[list[Document], dict[str, str]]:
    """Tell documents of the same title apart by their paths.

    Returns: the documents; the title of each file's, by the path with and without suffix.
    """
    titles = Counter(document.title for file in files for document in file.documents)
    documents = list[Document]()
    names = {}
    for file in files:
        if file.name.lower().endswith(RECORDS):
            documents += file.documents
            continue
        for document in file.documents:
            title = document.title
            if titles[title] > 1 and title != short[file.name]:
                title = f"{title} ({short[file.name]})"
            documents.append(replace(document, title=title))
            names[short[file.name]] = title
            names[file.name] = title
    return documents, names


def _short_names(folder: Path, paths: list[Path]) -> dict[str, str]:
    """Each file's path in the folder -> without suffix, unless that alone tells it from another
    one.
    """
    names = [Path(_name(folder, path)) for path in paths]
    short = {
        n.as_posix(): n.with_name(n.name.removesuffix(".gz")).with_suffix("").as_posix()
        for n in names
    }
    counts = Counter(short.values())
    return {name: name if counts[without] > 1 else without for name, without in short.items()}


def _records(path: Path, name: str) -> tuple[list[Document], str]:
    """The documents of JSON lines, and how many have an empty title or text, as BEIR's may. One
    without a title, as in C4, is titled by the file and its line.
    """
    documents = []
    empty = Counter[str]()
    for number, record in jsonl.read_jsonl(path):
        place = f"{path}:{number}"
        blank = {key for key in ("title", "text") if not str(record.get(key, key) or "").strip()}
        empty.update(blank)
        if "text" in blank:
            continue
        titled = "title" in record and "title" not in blank
        title = jsonl.field(record, "title", str, place) if titled else f"{name}/{number}"
        documents.append(Document(clean(title), clean(jsonl.field(record, "text", str, place))))
    counts = [f"lines with an empty {key}: {empty[key]}" for key in ("title", "text") if empty[key]]
    return documents, ", ".join(counts)


def _nothing(place: Path, folder: Path, skipped: Mapping[str, str]) -> str:
    """Say why a place has no documents."""
    if skipped:
        name, reason = next(iter(skipped.items()))
        more = f"; {len(skipped) - 1} more could not be read" if len(skipped) > 1 else ""
        return f"{folder / name}: {reason}{more}"
    what = "holds no file that ends with" if place.is_dir() else "ends with none of"
    return f"{place} {what} {', '.join(SUFFIXES)}"
