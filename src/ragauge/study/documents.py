"""The documents of a folder or of one file: every file that can be read, and for every other one
why not.
"""

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ragauge.datasets.base.dataset import Document
from ragauge.errors import UserError
from ragauge.io import jsonl
from ragauge.io.progress import bar
from ragauge.study import formats
from ragauge.text import clean

RECORDS = (".jsonl", ".jsonl.gz")
SHOWN = 10  # skipped files that are named on the screen; the study's file names all

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceDocuments:
    """The documents of a folder, and the files that could not be read."""

    # titled as they title themselves, else by their path without suffix
    documents: tuple[Document, ...]
    # path in the folder, also without suffix -> title
    names: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # path in the folder -> reason
    # path in the folder -> what is missing
    read_in_part: dict[str, str] = field(default_factory=dict)
    # path of a page -> share of its characters
    left_out: dict[str, float] = field(default_factory=dict)
    # suffix -> files of kinds that nothing here reads
    not_read: dict[str, int] = field(default_factory=dict)


def read(place: Path) -> SourceDocuments:
    """Read the documents of a folder, at any depth, in the order of the files' names, or of one
    file.

    A file without text that can be read is skipped and named, so that one scan among a thousand
    manuals does not end a study. JSON lines are data, in which a mistake is refused. Hidden files
    are ignored.

    Raises UserError: no such place, nothing in it that can be read, a mistake in JSON lines, a
    library is missing.
    """
    if not place.exists():
        raise UserError(f"--documents: {place}: no such folder or file")
    folder = place.parent
    files = [place]
    if place.is_dir():
        folder = place
        hidden = (".", "~$")  # the latter are Word's locks
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = [
            f
            for f in files
            if not any(part.startswith(hidden) for part in f.relative_to(folder).parts)
        ]
    paths = [path for path in files if path.name.lower().endswith((*formats.READERS, *RECORDS))]
    others = Counter[str]()
    # counted by the end of the name, as `.txt.gz`, or by the name
    for path in sorted({*files} - {*paths}):
        ends = path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]
        others["".join(ends).lower() or path.name] += 1
    read = list[tuple[str, Document]]()
    skipped = dict[str, str]()  # with the file's name where it has one document
    in_part = dict[str, str]()
    left_out = dict[str, float]()
    short = _short_names(folder, paths)
    for path in bar("reading documents", "file", iterable=paths, delay=2):
        name = path.relative_to(folder).as_posix()
        if path.name.lower().endswith(RECORDS):
            records, empty = _records(path, short[name])
            read += (("", record) for record in records)
            (in_part if records else skipped).update({name: empty} if empty else {})
            continue
        try:
            content = formats.read(path)
        except formats.UnreadableError as error:
            skipped[name] = str(error)
            continue
        read.append((name, Document(content.title or short[name], content.text)))
        in_part |= {name: content.warning} if content.warning else {}
        left_out |= {name: round(content.left_out, 3)} if content.left_out else {}
    if not read:
        raise UserError(f"--documents: {_nothing(place, folder, skipped)}")
    for what, reasons in (("skipped", skipped), ("read in part:", in_part)):
        for name, reason in islice(reasons.items(), SHOWN):
            logger.warning("%s %s: %s", what, folder / name, reason)
        if len(reasons) > SHOWN:
            logger.warning(
                "%s %d more files, which retrieval.json of the study names",
                what,
                len(reasons) - SHOWN,
            )
    if others:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in others.items())
        logger.warning("not read, being of other kinds: %s", counts)
    titles = Counter(document.title for _, document in read)
    documents = list[Document]()
    names = dict[str, str]()
    for name, document in read:
        if name and titles[document.title] > 1 and document.title != short[name]:
            document = replace(document, title=f"{document.title} ({short[name]})")
        names |= {short[name]: document.title, name: document.title} if name else {}
        documents.append(document)
    return SourceDocuments(tuple(documents), names, skipped, in_part, left_out, dict(others))


def _short_names(folder: Path, paths: list[Path]) -> dict[str, str]:
    """Each file's path in the folder -> without suffix, unless that alone tells it from another
    one.
    """
    names = [path.relative_to(folder) for path in paths]
    short = {
        n.as_posix(): n.with_name(n.name.removesuffix(".gz")).with_suffix("").as_posix()
        for n in names
    }
    counts = Counter(short.values())
    return {name: name if counts[one] > 1 else one for name, one in short.items()}


def _records(path: Path, name: str) -> tuple[list[Document], str]:
    """The documents of JSON lines, and how many have an empty title or text, as BEIR's may. One
    without a title, as in C4, is titled by the file and its line.
    """
    made = list[Document]()
    empty = Counter[str]()
    for number, record in jsonl.read_jsonl(path):
        blank = {key for key in ("title", "text") if not str(record.get(key, key) or "").strip()}
        empty.update(blank)
        if "text" not in blank:
            titled = {
                "title": f"{name}/{number}",
                **{key: record[key] for key in record if key not in blank},
            }
            title, text = (
                jsonl.field(titled, key, str, f"{path}:{number}") for key in ("title", "text")
            )
            made.append(Document(clean(title), clean(text)))
    return made, ", ".join(
        f"lines with an empty {key}: {empty[key]}" for key in ("title", "text") if empty[key]
    )


def _nothing(place: Path, folder: Path, skipped: dict[str, str]) -> str:
    ends = ", ".join((*formats.READERS, *RECORDS))
    if not skipped:
        return (
            f"{place} holds no file that ends with {ends}"
            if place.is_dir()
            else f"{place} ends with none of {ends}"
        )
    name, reason = next(iter(skipped.items()))
    more = f"; {len(skipped) - 1} more could not be read" if len(skipped) > 1 else ""
    return f"{folder / name}: {reason}{more}"
