"""The text of HTML, PDF, DOCX and Markdown files; a file that cannot be read says why in one line.

Headings, lists and tables have the marks of Markdown; blank lines part them and paragraphs, so that
none runs into the next sentence. The libraries are the extra `study` of the package, each imported
where it is used.
"""

import importlib
import io
import logging
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, explain_missing_extra
from ragauge.study import markup, pdf_pages, web_pages
from ragauge.text import clean

LARGEST_BYTES = 100 << 20  # of a file
# of the unpacked text of a DOCX file, of which a parser holds some thirty copies
LARGEST_XML_BYTES = 32 << 20
LEAST_EXTRACTED = 0.1  # part of a page's characters below which the page is read badly,
UNEXTRACTED = (4, 1000)  # as it is if it has 4 times the extracted characters, and 1,000 more
FRONT_MATTER = re.compile(
    r"\A(---|\+\+\+)[ \t]*\n([\w-]+[ \t]*[:=].*?\n)(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL
)
STATED_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*([\"']?)([^\s>|].*?)\1[ \t]*$", re.MULTILINE | re.IGNORECASE
)
HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*?)[ \t#]*$|^(\S.*)\n=+[ \t]*$", re.MULTILINE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CORE = "docProps/core.xml"
CORE_TITLE = re.compile(r"<dc:title>([^<]*)</dc:title>")
# of Word, which mammoth reads as a paragraph
STYLES = "p[style-name='Title'] => h1:fresh\np.Title => h1:fresh"
BACK_LINK = "\u2191"  # of mammoth, from a note to its place


class UnreadableError(Exception):
    """A file without text that can be read; the message says why."""


@dataclass(frozen=True)
class Content:
    text: str
    title: str = ""  # that it states
    warning: str = ""  # of what could not be read
    # share of a page's characters that are not its content: navigation, footers, controls
    left_out: float = 0.0


def read(path: Path) -> Content:
    """Read the text of a file, by its suffix, which is one of `READERS`. Raises UnreadableError: it
    is too large, empty, encrypted, damaged, without text, or not what its suffix says; UserError:
    the library that reads it is missing.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise UnreadableError(
                f"{size >> 20:,} MB; files are read up to {LARGEST_BYTES >> 20} MB"
            )
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot be opened: {error.strerror}") from None
    if not content.strip():
        raise UnreadableError("empty")
    made = READERS[path.suffix.lower()](content)
    if not made.text.strip():
        raise UnreadableError("holds no text")
    return replace(made, text=clean(made.text), title=" ".join(clean(made.title).split()))


def plain(content: bytes) -> Content:
    try:
        return Content(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 text (byte {error.start})") from None


def markdown(content: bytes) -> Content:
    """Decode Markdown: without its front matter, titled by that or by the first heading."""
    text = plain(content).text.replace("\r\n", "\n")
    front = FRONT_MATTER.match(text)
    text = text[front.end() :] if front else text
    stated = STATED_TITLE.search(front[2]) if front else None
    heading = HEADING.search(FENCED.sub("", text))
    title = stated[2] if stated else (heading[1] or heading[2]) if heading else ""
    return Content(
        text, title if stated else re.sub(r"[*`]|\[([^]]*)\]\([^)]*\)|\{[^}]*\}$", r"\1", title)
    )


def html(content: bytes) -> Content:
    """Extract the content of a page, without navigation, comments, footers and advertisements."""
    trafilatura = _library("trafilatura", "HTML")
    with _one_line_errors("HTML"):
        text, title, size, visible = web_pages.read(content, trafilatura)
    factor, more = UNEXTRACTED
    share = size / max(1, visible)
    is_poor = share < LEAST_EXTRACTED or visible > factor * size + more
    return Content(
        text,
        title,
        f"only {share:.0%} of the page's text was recognised as content" * is_poor,
        1 - share,
    )


def docx(content: bytes) -> Content:
    """Extract headings, paragraphs, tables, lists and notes of a Word document, tracked changes
    taken as accepted.
    """
    mammoth = _library("mammoth", "DOCX")
    # an OLE file, in which Office keeps encrypted documents and old ones
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableError("encrypted, or in the format of Word before 2007")
    with _one_line_errors("a Word document"):
        # which never unpacks more of a part than it declares
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            parts = [
                part for part in package.infolist() if part.filename.endswith((".xml", ".rels"))
            ]
            size = sum(part.file_size for part in parts)
            if size > LARGEST_XML_BYTES:  # kilobytes of zip can hold terabytes
                limit = LARGEST_XML_BYTES >> 20
                raise UnreadableError(
                    f"unpacks to {size >> 20:,} MB of text; read are up to {limit} MB"
                )
            core = (
                package.read(CORE).decode("utf-8", "replace") if CORE in package.namelist() else ""
            )
        title = unescape(match[1]) if (match := CORE_TITLE.search(core)) else ""
        page = mammoth.convert_to_html(
            io.BytesIO(content), convert_image=lambda image: [], style_map=STYLES
        ).value
        text = markup.text_of(
            _library("lxml.html", "DOCX").fromstring(f"<div>{page.replace(BACK_LINK, '')}</div>")
        )
    return Content(text, title or ((heading := HEADING.search(text)) and heading[1]) or "")


def pdf(content: bytes) -> Content:
    """Extract the text layer of a PDF, page after page: paragraphs, tables, columns one after
    another.
    """
    pypdf = _library("pypdf", "PDF")
    with _one_line_errors("a PDF"):
        try:
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableError("encrypted; save it without a password")
        except pypdf.errors.DependencyError:
            raise UnreadableError(
                "encrypted with AES, which takes the package cryptography"
            ) from None
        read = pdf_pages.read(reader.pages)
    if not any(text for text, _ in read):
        raise UnreadableError(
            f"no text on any of its {len(read)} pages: a scan needs text recognition (OCR) first"
        )
    texts = [text for text, _ in read if text]
    return Content("\n\n".join(texts), warning="; ".join(pdf_pages.warnings(read)))


READERS: dict[str, Callable[[bytes], Content]] = {
    ".md": markdown,
    ".txt": plain,
    **dict.fromkeys((".html", ".htm", ".xhtml"), html),
    ".pdf": pdf,
    ".docx": docx,
}


def _library(name: str, kind: str) -> Any:
    with explain_missing_extra(f"{kind} documents are read with {name}"):
        return importlib.import_module(name)


@contextmanager
def _one_line_errors(kind: str) -> Iterator[None]:
    """Turn everything that a library raises or logs about a damaged file into one line."""
    logging.disable(logging.CRITICAL)  # pypdf logs every object that it repairs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (UnreadableError, UserError):
        raise
    except Exception as error:  # parsers of foreign files fail in any way, by recursion and missing keys among them
        reason = " ".join(str(error).split())[:120]
        raise UnreadableError(
            f"not {kind}, or damaged: {type(error).__name__}{reason and f': {reason}'}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
