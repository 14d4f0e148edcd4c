"""Passages of the Wikipedia sample: MediaWiki export -> articles -> passages of about 100 words.

Wikitext is parsed by mwparserfromhell and rendered here, since its own `strip_code` keeps the
captions of images and drops the value of `{{convert|5|km}}`.
"""

import bz2
import html
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ragauge.errors import UserError

LONG_CHARACTERS = 4000  # of wikitext; shorter pages are stubs and redirects
PASSAGE_WORDS = 100
SHORTEST_WORDS = 10  # shorter sections are remnants of tables or galleries

# headings of sections of references and links, in lower case
APPARATUS = [
    "bibliography",
    "citations",
    "external links",
    "footnotes",
    "further reading",
    "gallery",
    "notes",
    "notes and references",
    "primary sources",
    "references",
    "references and sources",
    "secondary sources",
    "see also",
    "sources",
    "works cited",
]


@dataclass(frozen=True)
class Section:
    """The text of an article below one heading; the lead section has an empty heading."""

    heading: str
    text: str  # plain text; paragraphs and list items are lines


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


@dataclass(frozen=True)
class Article:
    title: str
    sections: tuple[Section, ...]

    def passages(self) -> Iterator[ArticlePassage]:
        for section in self.sections:
            for text in cut_text(section.text):
                if len(text.split()) >= SHORTEST_WORDS:
                    yield ArticlePassage(self.title, section.heading, text)


def read_passages(path: Path) -> list[ArticlePassage]:
    """Return all passages of the export's long articles, in the order of the file."""
    return [passage for article in read_articles(path) for passage in article.passages()]


def read_articles(path: Path) -> Iterator[Article]:
    """Yield the long articles of a bzip2-compressed MediaWiki export; raise UserError if it is
    damaged.
    """
    for title, wikitext in read_long_pages(path):
        yield Article(title, tuple(clean_sections(wikitext)))


def read_long_pages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield title and wikitext of the export's long articles: pages in the main name space that are
    no redirects. Of a page's history the newest revision is read.
    """
    try:
        with bz2.open(path) as stream:
            if b"<!DOCTYPE" in stream.peek():  # it could define entities that grow without bound
                raise ElementTree.ParseError(
                    "a document type declaration is not part of a MediaWiki export"
                )
            events = ElementTree.iterparse(stream, ("start", "end"))
            _, root = next(events)
            for event, element in events:
                if event == "end" and element.tag.endswith("page"):
                    wikitext = _newest_text(element)
                    is_redirect = element.find("{*}redirect") is not None
                    is_article = element.findtext("{*}ns") == "0" and not is_redirect
                    if is_article and len(wikitext) > LONG_CHARACTERS:
                        yield element.findtext("{*}title", ""), wikitext
                    root.clear()
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not a complete MediaWiki export: {error}") from error
    except (EOFError, OSError) as error:
        raise UserError(f"{path}: cannot be read as bzip2: {error}") from error


def _newest_text(page: ElementTree.Element) -> str:
    """Return the wikitext of a page's newest revision; of revisions of one time, of the last."""
    revisions = page.findall("{*}revision")
    revisions.sort(key=lambda revision: revision.findtext("{*}timestamp", ""))
    return revisions[-1].findtext("{*}text", "") if revisions else ""


_HEADING = re.compile(r"^=+[ \t]*(.+?)[ \t]*=+[ \t]*$", re.MULTILINE)


def clean_sections(wikitext: str) -> Iterator[Section]:
    """Yield the sections of a page as plain text, without references, lists of links and empty
    sections. Sections are split before they are parsed, so that an unclosed tag spoils its own
    section alone.
    """
    lead, *rest = _HEADING.split(re.sub(r"<!--.*?-->", "", wikitext, flags=re.DOTALL))
    for title, body in [("", lead), *zip(rest[::2], rest[1::2], strict=True)]:
        heading = _squeeze(_plain(title))
        text = _tidy(_plain(body))
        if text and heading.lower() not in APPARATUS:
            yield Section(heading, text)


def _plain(wikitext: str) -> str:
    """Render wikitext; remove the quote marks of bold and italics first, as unbalanced ones confuse
    the parser.
    """
    import mwparserfromhell

    return _render(mwparserfromhell.parse(re.sub(r"'{2,}", "", wikitext), skip_style_tags=True))


def _render(code: Any) -> str:
    """Return the plain text of a mwparserfromhell Wikicode; node kinds that are not listed have
    none.
    """
    return "".join(RENDERERS.get(type(node).__name__, lambda _: "")(node) for node in code.nodes)


def _render_link(node: Any) -> str:
    prefix, colon, _ = str(node.title).strip().partition(":")
    if colon and prefix.strip().lower() in ("file", "image", "category", "media"):
        return ""
    return _render(node.title if node.text is None else node.text)


def _render_tag(node: Any) -> str:
    name = str(node.tag).strip().lower()
    if name == "br":
        return " "
    is_hidden = "display:none" in re.sub(r"\s", "", " ".join(map(str, node.attributes))).lower()
    if name in TEXTLESS_TAGS or is_hidden or node.contents is None:
        return ""
    return _render(node.contents)


def _render_template(node: Any) -> str:
    """Text of the few templates that stand for a word of the sentence; all others are boxes, notes
    and citations.
    """
    name = str(node.name).strip().lower().replace("_", " ")
    render = TEMPLATES.get("lang-" if name.startswith("lang-") else name)
    values = [_render(p.value).strip() for p in node.params if not p.showkey]
    return render(values) if render and values else ""


def _convert(values: list[str]) -> str:
    """`{{convert|5|km|mi}}` and `{{convert|5|to|7|km|mi}}`."""
    ranges = {"to", "-", "–", "and", "by", "x", "or"}
    return " ".join(values[: 4 if len(values) > 3 and values[1] in ranges else 2])


TEXTLESS_TAGS = [
    "gallery",
    "imagemap",
    "math",
    "ref",
    "references",
    "source",
    "syntaxhighlight",
    "table",
    "timeline",
]
RENDERERS: dict[str, Callable[[Any], str]] = {
    "Text": lambda node: str(node.value),
    "Wikilink": _render_link,
    "Tag": _render_tag,
    "Template": _render_template,
    "HTMLEntity": lambda node: html.unescape(str(node)),
    "ExternalLink": lambda node: "" if node.title is None else _render(node.title),
}
# templates that show their first value
FIRST_VALUE = [
    "angbr",
    "dts",
    "formatnum",
    "lang-",
    "nihongo",
    "nobold",
    "nowrap",
    "nts",
    "quote",
    "sic",
    "small",
    "smaller",
    "sub",
    "sup",
    "vanchor",
]
TEMPLATES: dict[str, Callable[[list[str]], str]] = {
    "as of": lambda values: "As of " + values[0],
    **dict.fromkeys(("c.", "circa"), lambda values: "c. " + values[0]),
    **dict.fromkeys(("convert", "cvt"), _convert),
    "chem": "".join,
    "frac": "/".join,
    **dict.fromkeys(("lang", "transl"), lambda values: values[-1]),
    **dict.fromkeys(FIRST_VALUE, lambda values: values[0]),
}


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


_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]”]))"  # a full stop, perhaps inside a closing quote,
    r"(?<!\b[A-Zc]\.)(?<!\b(?:Dr|Mr|St|Jr|No|vs|ca|cf)\.)(?<!\bMrs\.)"  # that ends no abbreviation,
    r"\s+(?=[\"'(“]?[A-Z0-9])"  # before something that can begin a sentence
)


def cut_text(text: str, words: int = PASSAGE_WORDS) -> list[str]:
    """Cut text into pieces of about `words` words and of like length, at ends of sentences where
    there are any. The text is divided into equal shares; a sentence belongs to the share that its
    middle word falls into.
    """
    sentences: list[list[str]] = []
    for line in text.split("\n"):
        for sentence in map(str.split, _SENTENCE_END.split(line)):
            # of equal length, where it is longer than a piece (lists)
            parts = max(1, -(-len(sentence) // words))
            bounds = pairwise(part * len(sentence) // parts for part in range(parts + 1))
            sentences.extend(sentence[start:end] for start, end in bounds)
    ends = list(accumulate(map(len, sentences), initial=0))
    shares = max(1, round(ends[-1] / words))
    pieces: list[list[str]] = [[] for _ in range(shares)]
    for sentence, (start, end) in zip(sentences, pairwise(ends), strict=True):
        if sentence:
            pieces[min(shares - 1, (start + end) * shares // (2 * ends[-1]))].extend(sentence)
    return [" ".join(piece) for piece in pieces if piece]
