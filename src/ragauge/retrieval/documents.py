"""Documents of local files: JSON lines, MediaWiki exports, plain text in three layouts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.jsonl import field, json_object, read_lines

MAX_DOCUMENT_BYTES = 1 << 26  # a longer one is a damaged file or a corpus of another format


@dataclass(frozen=True)
class CorpusDocument:
    """A text; no chunk crosses its end."""

    place: str  # its source: file:line, or the hub's data set and number
    title: str  # empty if the corpus has none
    text: str


@dataclass(frozen=True)
class Share:
    """Shard `number` of `of`."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise UserError(f"shard {self.number}: there are {self.of}, counted from 0")


class Deal:
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


def read_file(path: Path, text_field: str, deal: Deal) -> Iterator[CorpusDocument]:
    """The shard's documents, by the reader of the file's type."""
    if path.suffix == ".bz2":
        return _read_export(path, deal)
    if re.search(r"\.txt(\.gz)?$", path.name):
        return _read_text(path, deal)
    return _read_records(path, text_field, deal)


def _read_records(path: Path, text_field: str, deal: Deal) -> Iterator[CorpusDocument]:
    for number, line in read_lines(path, MAX_DOCUMENT_BYTES):
        if deal.over:
            return
        if line.strip() and deal.mine():
            place = f"{path}:{number}"
            if document := document_of(json_object(line, place), text_field, place):
                yield document


def document_of(record: Mapping[str, Any], text_field: str, place: str) -> CorpusDocument | None:
    """The document of a record; None if its text is blank."""
    text = record.get(text_field)
    if isinstance(text, str) and not text.strip():
        return None
    title = record.get("title")
    return CorpusDocument(place, title if isinstance(title, str) else "", field(record, text_field, str, place))


def _read_export(path: Path, deal: Deal) -> Iterator[CorpusDocument]:
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
    """The lines of one document in a text file."""

    place: str
    title: str
    lines: list[str]
    characters: int = 0

    def add(self, line: str) -> None:
        """Add a line. Raises UserError if the document becomes too long to hold in memory."""
        self.lines.append(line)
        self.characters += len(line) + 1
        if self.characters > MAX_DOCUMENT_BYTES:
            raise UserError(f"{self.place}: a document of more than {MAX_DOCUMENT_BYTES:,} characters")

    @property
    def blank(self) -> bool:
        return not any(line.strip() for line in self.lines)

    def document(self) -> CorpusDocument:
        return CorpusDocument(self.place, self.title, "\n".join(self.lines).strip())


def _read_text(path: Path, deal: Deal) -> Iterator[CorpusDocument]:
    for block in _blocks(path):
        if deal.over:
            return
        if not block.blank and deal.mine():
            yield block.document()


_WIKITEXT_TITLE = re.compile(r"\s*= ([^=].*?) =\s*")


def _blocks(path: Path) -> Iterator[_Block]:
    """The documents of a text file, whose layout is recognised by its first non-blank line."""
    lines = _text_lines(path)
    for place, line in lines:
        if line.strip():
            rest = chain([(place, line)], lines)
            if line.startswith("<doc "):
                return _doc_blocks(rest)
            return _blocks_by(rest, _WIKITEXT_TITLE if _WIKITEXT_TITLE.fullmatch(line) else None)
    return iter(())


def _text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each line; raises UserError if one is not UTF-8."""
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
        raise UserError(f"{block.place}: a document without </doc>: the file is truncated")


def _blocks_by(lines: Iterator[tuple[str, str]], title: re.Pattern[str] | None) -> Iterator[_Block]:
    """Documents that begin at each line of the pattern, or (None) that blank lines separate, as in BERT's corpora."""
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
