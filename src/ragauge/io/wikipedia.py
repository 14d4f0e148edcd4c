"""Passages of the Wikipedia sample: MediaWiki export -> articles -> passages of about 100 words.

The export is read as a stream; wikitext is parsed by mwparserfromhell and rendered to plain text here, since its own
`strip_code` keeps the captions of images and drops the value of `{{convert|5|km}}`.
"""

from __future__ import annotations

import bz2
import html
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ragauge.errors import UserError

LONG_CHARACTERS = 4000  # of wikitext; shorter pages are stubs and redirects
PASSAGE_WORDS = 100
SHORTEST_WORDS = 10  # shorter sections are remnants of tables or galleries
CHUNK_BYTES = 1 << 16

APPARATUS = (  # sections of references and links, in lower case
    *("bibliography", "citations", "external links", "footnotes", "further reading", "gallery", "notes"),
    *("notes and references", "primary sources", "references", "references and sources", "secondary sources"),
    *("see also", "sources", "works cited"),
)


@dataclass(frozen=True)
class Section:
    """The text of an article below one heading; the lead section has an empty heading."""

    heading: str
    text: str  # plain text; paragraphs and list items are lines


@dataclass(frozen=True)
class Article:
    """An article as plain text."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class ArticlePassage:
    """About `PASSAGE_WORDS` words of one section."""

    article: str
    heading: str
    text: str

    @property
    def title(self) -> str:
        """The title a prompt shows: a passage from mid-article is rarely clear without its heading."""
        return f"{self.article}: {self.heading}" if self.heading else self.article


def read_passages(path: Path) -> list[ArticlePassage]:
    """Return all passages of the export's long articles, in the order of the file."""
    return [passage for article in read_articles(path) for passage in cut_article(article)]


def read_articles(path: Path) -> Iterator[Article]:
    """Yield the long articles of a bzip2-compressed MediaWiki export; raise UserError if it is damaged."""
    for title, wikitext in read_long_pages(path):
        yield Article(title, tuple(clean_sections(wikitext)))


def read_long_pages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield title and wikitext of the export's long articles, for callers that clean only some of them."""
    return ((title, wikitext) for title, wikitext in _read_pages(path) if len(wikitext) > LONG_CHARACTERS)


# --- the export ---


class _PageCollector:
    """Target of an XML parser: collects (title, wikitext) of pages in the main name space that are no redirects."""

    FIELDS = frozenset(("title", "ns", "text"))

    def __init__(self) -> None:
        self.pages: list[tuple[str, str]] = []
        self._fields: dict[str, list[str]] = {}
        self._open: list[str] | None = None

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Exports have no document type; one could define entities that grow without bound."""
        raise ElementTree.ParseError("a document type declaration is not part of a MediaWiki export")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local(tag)
        if name == "page":
            self._fields = {}
        if name in self.FIELDS or name == "redirect":
            self._open = self._fields.setdefault(name, [])

    def data(self, text: str) -> None:
        if self._open is not None:
            self._open.append(text)

    def end(self, tag: str) -> None:
        self._open = None
        if _local(tag) == "page" and "redirect" not in self._fields:
            values = {name: "".join(parts) for name, parts in self._fields.items()}
            if values.get("ns") == "0":
                self.pages.append((values.get("title", ""), values.get("text", "")))

    def close(self) -> None:
        """The parser calls this at the end of the document."""


def _local(tag: str) -> str:
    """The tag without its `{namespace}`."""
    return tag.rpartition("}")[2]


def _read_pages(path: Path) -> Iterator[tuple[str, str]]:
    collector = _PageCollector()
    parser = ElementTree.XMLParser(target=collector)
    try:
        with bz2.open(path) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                parser.feed(chunk)
                yield from collector.pages
                collector.pages.clear()
        parser.close()
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not a complete MediaWiki export: {error}") from error
    except (EOFError, OSError) as error:
        raise UserError(f"{path}: cannot be read as bzip2: {error}") from error
    yield from collector.pages


# --- wikitext ---

_HEADING = re.compile(r"^=+[ \t]*(.+?)[ \t]*=+[ \t]*$", re.MULTILINE)


def clean_sections(wikitext: str) -> Iterator[Section]:
    """Yield the sections of a page as plain text, without references, lists of links and empty sections.

    Sections are split before they are parsed, so that an unclosed tag spoils its own section alone.
    """
    lead, *rest = _HEADING.split(re.sub(r"<!--.*?-->", "", wikitext, flags=re.DOTALL))
    for title, body in [("", lead), *zip(rest[::2], rest[1::2], strict=True)]:
        heading, text = _squeeze(_plain(title)), _tidy(_plain(body))
        if text and heading.lower() not in APPARATUS:
            yield Section(heading, text)


def _plain(wikitext: str) -> str:
    """Render wikitext; remove the quote marks of bold and italics first, as unbalanced ones confuse the parser."""
    import mwparserfromhell

    return _render(mwparserfromhell.parse(re.sub(r"'{2,}", "", wikitext), skip_style_tags=True))


def _render(code: Any) -> str:
    """Return the plain text of a mwparserfromhell Wikicode; node kinds that are not listed have none."""
    return "".join(RENDERERS.get(type(node).__name__, _nothing)(node) for node in code.nodes)


def _nothing(node: Any) -> str:
    return ""


def _render_link(node: Any) -> str:
    prefix, colon, _ = str(node.title).strip().partition(":")
    if colon and prefix.strip().lower() in ("file", "image", "category", "media"):
        return ""
    return _render(node.title if node.text is None else node.text)


def _render_tag(node: Any) -> str:
    name = str(node.tag).strip().lower()
    if name == "br":
        return " "
    if name in ("ref", "table", "gallery", "math", "timeline", "imagemap", "source", "syntaxhighlight", "references"):
        return ""
    if "display:none" in re.sub(r"\s", "", " ".join(map(str, node.attributes))).lower():
        return ""
    return _render(node.contents) if node.contents is not None else ""


def _render_entity(node: Any) -> str:
    return html.unescape(str(node))


def _render_template(node: Any) -> str:
    """Text of the few templates that stand for a word of the sentence; all others are boxes, notes and citations."""
    name = str(node.name).strip().lower().replace("_", " ")
    render = TEMPLATES.get("lang-" if name.startswith("lang-") else name)
    values = [_render(p.value).strip() for p in node.params if not p.showkey]
    return render(values) if render and values else ""


def _convert(values: list[str]) -> str:
    """`{{convert|5|km|mi}}` and `{{convert|5|to|7|km|mi}}`."""
    ranges = {"to", "-", "–", "and", "by", "x", "or"}
    count = 4 if len(values) > 3 and values[1] in ranges else 2
    return " ".join(values[:count])


def _first(values: list[str]) -> str:
    return values[0]


def _last(values: list[str]) -> str:
    return values[-1]


RENDERERS: dict[str, Callable[[Any], str]] = {
    "Text": lambda node: str(node.value),
    "Wikilink": _render_link,
    "Tag": _render_tag,
    "Template": _render_template,
    "HTMLEntity": _render_entity,
    "ExternalLink": lambda node: "" if node.title is None else _render(node.title),
}
TEMPLATES: dict[str, Callable[[list[str]], str]] = {
    "as of": lambda values: "As of " + values[0],
    "c.": lambda values: "c. " + values[0],
    "chem": "".join,
    "circa": lambda values: "c. " + values[0],
    "convert": _convert,
    "cvt": _convert,
    "frac": "/".join,
    "lang": _last,
    "transl": _last,
} | dict.fromkeys(
    (
        *("angbr", "dts", "formatnum", "lang-", "nihongo", "nobold", "nowrap", "nts", "quote", "sic", "small"),
        *("smaller", "sub", "sup", "vanchor"),
    ),
    _first,
)


def _tidy(text: str) -> str:
    """Remove what removed templates leave: empty brackets, spaces before commas, magic words."""
    text = re.sub(r"__[A-Z]+__", "", text)
    text = re.sub(r"\{\|.*?(\|\}|\Z)", "", text, flags=re.DOTALL)  # tables the parser gave up on
    text = re.sub(r"<ref\b[^\n]*", "", text)  # and references that are never closed
    text = re.sub(r"\(\s*(?:[;,:]\s*)+", "(", text)
    text = re.sub(r"[;,:\s]*\(\s*\)", "", text)
    lines = (re.sub(r"\s+([,.;:)])", r"\1", _squeeze(line)) for line in text.split("\n"))
    return "\n".join(line for line in lines if re.search(r"\w", line))


def _squeeze(text: str) -> str:
    return " ".join(text.split())


# --- passages ---

_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]”]))"  # a full stop, perhaps inside a closing quote,
    r"(?<!\b[A-Zc]\.)(?<!\b(?:Dr|Mr|St|Jr|No|vs|ca|cf)\.)(?<!\bMrs\.)"  # that ends no abbreviation,
    r"\s+(?=[\"'(“]?[A-Z0-9])"  # before something that can begin a sentence
)


def cut_article(article: Article, words: int = PASSAGE_WORDS) -> Iterator[ArticlePassage]:
    """Yield the passages of an article, section by section."""
    for section in article.sections:
        for text in cut_text(section.text, words):
            if len(text.split()) >= SHORTEST_WORDS:
                yield ArticlePassage(article.title, section.heading, text)


def cut_text(text: str, words: int = PASSAGE_WORDS) -> list[str]:
    """Cut text into pieces of about `words` words and of like length, at ends of sentences where there are any.

    The text is divided into equal shares; a sentence belongs to the share that its middle word falls into.
    """
    sentences = [
        piece for line in text.split("\n") for s in _SENTENCE_END.split(line) for piece in _split_long(s, words)
    ]
    ends = [0]
    for sentence in sentences:
        ends.append(ends[-1] + len(sentence.split()))
    if not ends[-1]:
        return []
    shares = max(1, round(ends[-1] / words))
    pieces: list[list[str]] = [[] for _ in range(shares)]
    for sentence, (start, end) in zip(sentences, pairwise(ends), strict=True):
        pieces[min(shares - 1, (start + end) * shares // (2 * ends[-1]))].append(sentence)
    return [" ".join(piece) for piece in pieces if piece]


def _split_long(sentence: str, words: int) -> Iterator[str]:
    """Yield a sentence, or its equal parts of at most `words` words if it is longer (lists, mostly)."""
    tokens = sentence.split()
    parts = max(1, -(-len(tokens) // words))
    for part in range(parts):
        yield " ".join(tokens[part * len(tokens) // parts : (part + 1) * len(tokens) // parts])
