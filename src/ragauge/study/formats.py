"""The text of HTML, PDF and DOCX files, of which anything may be wrong: a file that cannot be read says so in one line.

Paragraphs, headings, list items and rows of tables come out as paragraphs with a blank line between them, so that none
runs into the next sentence. The libraries are the extra `study` of the package, each imported where it is used.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.errors import UserError, extras_told

LARGEST_BYTES = 100 << 20  # of a file
LARGEST_XML_BYTES = 32 << 20  # of the unpacked text of a DOCX file, which is held some thirty times over as a tree

UNREAD = ("script", "style", "noscript", "template", "svg", "nav", "aside", "footer", "form", "iframe", "head")
BLOCKS = (
    *("address", "article", "blockquote", "caption", "dd", "div", "dl", "dt", "figcaption", "figure", "h1", "h2"),
    *("h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section", "table", "tr", "ul"),
)
CELLS, CELL = ("td", "th"), " | "  # between the cells of a row


class UnreadableError(Exception):
    """A file without text that can be read; the message says why."""


class Text(NamedTuple):
    """What was read of a file, and what could not be."""

    text: str
    remark: str = ""


def read(path: Path) -> Text:
    """The text of a file, by its suffix, which is one of `READERS`.

    Raises:
        UnreadableError: it is too large, empty, encrypted, damaged, without text, or not what its suffix says.
        UserError: the library that reads it is not installed.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise UnreadableError(f"{size >> 20:,} MB; files are read up to {LARGEST_BYTES >> 20} MB")
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot be opened: {error.strerror}") from None
    if not content.strip():
        raise UnreadableError("empty")
    found = READERS[path.suffix.lower()](content)
    if not found.text.strip():
        raise UnreadableError("holds no text")
    return found


def plain(content: bytes) -> Text:
    """Text and Markdown, as they stand."""
    try:
        return Text(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 text (byte {error.start})") from None


def html(content: bytes) -> Text:
    """What a page shows, without navigation, footers, forms and scripts."""
    soup_of = _library("bs4", "beautifulsoup4", "HTML and DOCX").BeautifulSoup
    with _quiet("HTML"):
        try:  # what decodes as UTF-8 is, whatever the page declares
            soup = soup_of(content.decode("utf-8-sig"), "html.parser")
        except UnicodeDecodeError:
            soup = soup_of(content, "html.parser")
        return Text(_shown(soup))


def docx(content: bytes) -> Text:
    """Paragraphs, tables, lists and notes of a Word document, tracked changes taken as accepted."""
    mammoth = _library("mammoth", "mammoth", "DOCX")
    _check_package(content)
    with _quiet("a Word document"):
        made = mammoth.convert_to_html(io.BytesIO(content), convert_image=lambda image: [])
        return html(made.value.encode())


def pdf(content: bytes) -> Text:
    """The text layer of a PDF, page after page, lines joined to paragraphs."""
    pypdf = _library("pypdf", "pypdf", "PDF")
    with _quiet("a PDF"):
        try:
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableError("encrypted; save it without a password")
        except pypdf.errors.DependencyError:
            raise UnreadableError("encrypted with AES, which takes the package cryptography") from None
        pages = [_flowing(page.extract_text()) for page in reader.pages]
    if not any(pages):
        raise UnreadableError(f"no text on any of its {len(pages)} pages: a scan needs text recognition (OCR) first")
    bare = [str(number) for number, page in enumerate(pages, start=1) if not page]
    remark = f"{len(bare)} of {len(pages)} pages hold no text, the first is page {bare[0]}" if bare else ""
    return Text("\n\n".join(page for page in pages if page), remark)


READERS: dict[str, Callable[[bytes], Text]] = {
    ".md": plain,
    ".txt": plain,
    ".html": html,
    ".htm": html,
    ".xhtml": html,
    ".pdf": pdf,
    ".docx": docx,
}


def _library(module: str, package: str, kind: str) -> Any:
    with extras_told(f"{kind} documents are read with {package}"):
        return importlib.import_module(module)


@contextmanager
def _quiet(kind: str) -> Iterator[None]:
    """Whatever a library raises or says of a damaged file becomes one line."""
    logger = logging.getLogger("pypdf")  # which tells of every object that it repairs
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (UnreadableError, UserError):
        raise
    except Exception as error:  # parsers of foreign files fail in any way, by recursion and by lack of keys among them
        reason = " ".join(str(error).split())[:120]
        raise UnreadableError(f"not {kind}, or damaged: {type(error).__name__}{reason and f': {reason}'}") from None
    finally:
        logger.setLevel(level)


def _check_package(content: bytes) -> None:
    """Refuse what is no DOCX, encrypted, or unpacks to more than is read: a few kilobytes of zip can hold terabytes."""
    if content.startswith(b"\xd0\xcf\x11\xe0"):  # an OLE file, in which Office keeps encrypted documents and old ones
        raise UnreadableError("encrypted, or in the format of Word before 2007")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            parts = [part for part in package.infolist() if part.filename.endswith((".xml", ".rels"))]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnreadableError(f"not a Word document, or damaged: {error}") from None
    size = sum(part.file_size for part in parts)  # zipfile never unpacks more of a part than it declares
    if size > LARGEST_XML_BYTES:
        raise UnreadableError(f"unpacks to {size >> 20:,} MB of text; read are up to {LARGEST_XML_BYTES >> 20} MB")


def _shown(soup: Any) -> str:
    """The text of a parsed page, a blank line between its blocks."""
    shown = re.sub(r"[ \t]+", " ", "".join(_pieces(soup)))
    lines = [re.sub(r"^[ |]+|[ |]+$", "", line) for line in shown.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _pieces(soup: Any) -> Iterator[str]:
    """Texts and what parts them, in one walk without recursion: pages nest thousands deep where tags are not closed."""
    cells = kept = 0  # how many table cells and preformatted blocks are open
    opened = [(soup, iter(soup.contents))]
    while opened:
        tag, inside = opened[-1]
        node = next(inside, None)
        if node is None:
            opened.pop()
            cells -= tag.name in CELLS
            kept -= tag.name == "pre"
            yield CELL if tag.name in CELLS and not cells else _around(tag.name, cells)
        elif node.name is None:  # a text, a comment or a declaration
            shown = str(node) if type(node) in soup.interesting_string_types else ""
            yield shown if kept else re.sub(r"\s+", " ", shown)  # white space as a browser shows it
        elif node.name not in UNREAD:
            yield _around(node.name, cells) if node.name != "br" else ""
            cells += node.name in CELLS
            kept += node.name == "pre"
            opened.append((node, iter(node.contents)))


def _around(name: str, cells: int) -> str:
    """What stands before and after an element: a row is one paragraph, whatever its cells hold."""
    if name == "br":
        return " " if cells else "\n"
    if name in BLOCKS:
        return " " if cells else "\n\n"
    return ""


def _flowing(text: str) -> str:
    """The lines of a page joined to paragraphs, which blank lines part; words hyphenated at a line's end made whole."""
    paragraphs = re.split(r"\n[ \t]*\n", text)
    joined = (re.sub(r"(?<=[^\W\d_])[-\u00ad\u2010][ \t]*\n[ \t]*(?=[a-zß-ÿ])", "", part) for part in paragraphs)
    return "\n\n".join(" ".join(part.split()) for part in joined if part.strip())
