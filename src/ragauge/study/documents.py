"""The documents of a folder or of one file: every file that can be read, and for every other one
why not.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath

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
    """The documents of a folder, and what was not read of it."""

    # titled as they title themselves, else by their path without suffix
    documents: tuple[Document, ...]
    # path in the folder, also without suffix -> title
    names: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # path in the folder -> reason
    # path in the folder -> what is missing
    read_in_part: dict[str, str] = field(default_factory=dict)
    # path of a page -> share of its characters that are no content
    left_out: dict[str, float] = field(default_factory=dict)
    # path -> what was left out of it, as being no content
    omissions: dict[str, str] = field(default_factory=dict)
    # suffix -> files of kinds that nothing here reads
    not_read: dict[str, int] = field(default_factory=dict)


def read(place: Path) -> SourceDocuments:
    """Read the documents of a folder, at any depth, in the order of the files' names, or of a file.

    A file without text that can be read is skipped and named, so that one scan among a thousand
    manuals does not end a study. JSON lines are data, in which a mistake is refused. Hidden files
    are ignored.

    Raises UserError: no such place, nothing in it that can be read, a mistake in JSON lines, a
    library is missing.
    """
    if not place.exists():
        raise UserError(f"--documents: {place}: no such folder or file")
    folder = place if place.is_dir() else place.parent
    files = _visible_files(place) if place.is_dir() else [place]
    paths = {_name(folder, path): path for path in files if _ends_with(path, SUFFIXES)}
    short = _short_names(paths)
    others = [path for path in files if not _ends_with(path, SUFFIXES)]
    unread = Counter(path.suffix.lower() or path.name for path in others)
    found = SourceDocuments((), not_read=dict(unread))
    read: list[tuple[Document, str]] = []  # with the file's name, or "" for a line of JSON
    with ReaderProcess() as reader:
        for name, path in bar("reading documents", "file", iterable=paths.items(), delay=2):
            if _ends_with(path, RECORDS):
                records, empty = _records(path, short[name])
                read += [(record, "") for record in records]
                if empty:
                    (found.read_in_part if records else found.skipped)[name] = empty
                continue
            try:
                content = reader.read(path)
            except UnreadableError as error:
                found.skipped[name] = str(error)
                continue
            read.append((Document(content.title or short[name], content.text), name))
            if content.warning:
                found.read_in_part[name] = content.warning
            if share := round(content.left_out, 3):
                found.left_out[name] = share
            if content.omissions:
                found.omissions[name] = content.omissions
    if not read:
        raise UserError(f"--documents: {_nothing(place, folder, found.skipped)}")
    _warn("skipped", folder, found.skipped)
    _warn("read in part:", folder, found.read_in_part)
    if unread:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in unread.items())
        kinds = ", ".join(formats.READERS)
        logger.warning("not read, being of other kinds: %s; convert them to %s", counts, kinds)
    titles = Counter(document.title for document, _ in read)
    documents: list[Document] = []
    for document, name in read:
        title = document.title
        if name:
            if titles[title] > 1 and title != short[name]:
                title = f"{title} ({short[name]})"
            found.names.update({short[name]: title, name: title})
        documents.append(Document(title, document.text))
    return replace(found, documents=tuple(documents))


def _ends_with(path: Path, suffixes: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(suffixes)


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


def _warn(what: str, folder: Path, reasons: Mapping[str, str]) -> None:
    for name, reason in islice(reasons.items(), MAX_NAMED):
        logger.warning("%s %s: %s", what, folder / name, reason)
    more = len(reasons) - MAX_NAMED
    if more > 0:
        logger.warning("%s %d more files, which retrieval.json of the study names", what, more)


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Each file's path in the folder -> without suffix, unless that alone tells it from another
    one.
    """
    short = {n: str(PurePosixPath(n.removesuffix(".gz")).with_suffix("")) for n in names}
    counts = Counter(short.values())
    return {name: name if counts[without] > 1 else without for name, without in short.items()}


def _records(path: Path, name: str) -> tuple[list[Document], str]:
    """The documents of JSON lines, and how many lines have an empty text, as BEIR's may. One
    without a title, as in C4, is titled by the file and its line.
    """
    documents: list[Document] = []
    empty = 0
    for number, record in jsonl.read_jsonl(path):
        place = f"{path}:{number}"
        title = f"{name}/{number}"
        if str(record.get("title") or "").strip():
            title = jsonl.field(record, "title", str, place)
        if "text" in record and not str(record["text"] or "").strip():
            empty += 1
        else:
            text = jsonl.field(record, "text", str, place)
            documents.append(Document(clean(title), clean(text)))
    return documents, f"lines with an empty text: {empty}" if empty else ""


def _nothing(place: Path, folder: Path, skipped: Mapping[str, str]) -> str:
    """Say why a place has no documents."""
    for name, reason in skipped.items():
        return f"{folder / name}: {reason}"
    what = "holds no file that ends with" if place.is_dir() else "ends with none of"
    return f"{place} {what} {', '.join(SUFFIXES)}"
