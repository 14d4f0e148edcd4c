"""Documents of local files: JSON lines, MediaWiki exports, plain text in three layouts."""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ragauge.datasets.base.wikipedia import Article, clean_sections, read_long_pages
from ragauge.datasets.wiki_long import article_text
from ragauge.errors import UserError
from ragauge.io.jsonl import field, json_object, read_lines

MAX_LINE_BYTES = 1 << 26  # a longer one is a damaged file or a corpus of another format


@dataclass(frozen=True)
class CorpusDocument:
    """A text; no chunk crosses its end."""

    place: str  # its source: file:line, or the hub's data set and number
    title: str  # empty if the corpus has none
    text: str


@dataclass(frozen=True)
class ShardShare:
    """Shard `number` of `of`."""

    number: int = 0
    of: int = 1


# parses a document when it is called; None if its text is blank
ParseDocument = Callable[[], CorpusDocument | None]


def read_file(path: Path, text_field: str) -> Iterator[ParseDocument]:
    """Return the documents of a file, by the reader of the file's type; each is parsed by the shard
    that takes it.
    """
    if path.suffix == ".bz2":
        pages = enumerate(read_long_pages(path), start=1)
        return (partial(_parse_page, f"{path}: article {number}", *page) for number, page in pages)
    if re.search(r"\.txt(\.gz)?$", path.name):
        return (
            block.document for block in _blocks(path) if any(line.strip() for line in block.lines)
        )
    lines = read_lines(path, MAX_LINE_BYTES)
    return (
        partial(_parse_line, line, text_field, f"{path}:{number}")
        for number, line in lines
        if line.strip()
    )


def _parse_line(line: bytes, text_field: str, location: str) -> CorpusDocument | None:
    return parse_record(json_object(line, location), text_field, location)


def parse_record(
    record: Mapping[str, Any], text_field: str, location: str
) -> CorpusDocument | None:
    """Return the document of a record; None if its text is blank."""
    text = record.get(text_field, 0)
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    title = record.get("title")
    return CorpusDocument(
        location, title if isinstance(title, str) else "", field(record, text_field, str, location)
    )


def _parse_page(location: str, title: str, wikitext: str) -> CorpusDocument | None:
    """Return a long article of a MediaWiki export, its sections below one another."""
    text = article_text(Article(title, tuple(clean_sections(wikitext))))
    return CorpusDocument(location, title, text) if text.strip() else None


@dataclass
class _Block:
    place: str
    title: str
    lines: list[str]

    def document(self) -> CorpusDocument:
        return CorpusDocument(self.place, self.title, "\n".join(self.lines).strip())


_WIKITEXT_TITLE = re.compile(r"\s*= ([^=].*?) =\s*")


def _blocks(path: Path) -> Iterator[_Block]:
    """Return the documents of a text file, whose layout is recognised by its first non-blank line."""
    lines = _text_lines(path)
    for location, line in lines:
        if line.strip():
            rest = chain([(location, line)], lines)
            if line.startswith("<doc "):
                return _doc_blocks(rest)
            return _blocks_by(rest, _WIKITEXT_TITLE if _WIKITEXT_TITLE.fullmatch(line) else None)
    return iter(())


def _text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each line; raises UserError if one is not UTF-8."""
    for number, line in read_lines(path, MAX_LINE_BYTES):
        try:
            yield f"{path}:{number}", line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: not UTF-8 text: {error.reason} at byte {error.start}"
            ) from error


def _doc_blocks(lines: Iterator[tuple[str, str]]) -> Iterator[_Block]:
    """WikiExtractor's layout: <doc id="" url="" title="">, the title, the text, </doc>."""
    block: _Block | None = None
    for location, line in lines:
        begins = line.startswith("<doc ")
        if (begins and block) or (line.strip() and not begins and not block):
            raise UserError(
                f"{location}: {line[:40]!r}: not in the order of <doc>, text and </doc>"
            )
        if begins:
            title = re.search(r'title="(.*)"', line)
            block = _Block(location, html.unescape(title[1]) if title else "", [])
        elif block and line.startswith("</doc>"):
            yield block
            block = None
        elif block:
            block.lines.append(_unescaped(line))
    if block:
        raise UserError(f"{block.place}: a document without </doc>: the file is truncated")


def _unescaped(text: str) -> str:
    """Return text as it was before WikiExtractor made it safe for HTML, which escapes &, < and >."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _blocks_by(lines: Iterator[tuple[str, str]], title: re.Pattern[str] | None) -> Iterator[_Block]:
    """Documents that begin at each line of the pattern, or (None) that blank lines separate, as in
    BERT's corpora.
    """
    block: _Block | None = None
    for location, line in lines:
        match = title.fullmatch(line) if title else None
        if block and (match or (title is None and not line.strip())):
            yield block
            block = None
        if block is None:
            block = _Block(location, match[1] if match else "", [])
        block.lines.append(line)
    if block:
        yield block
