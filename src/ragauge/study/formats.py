"""The text of HTML, PDF and DOCX files; a file that cannot be read says why in one line.

Paragraphs, headings, list items and table rows are parted by blank lines, so that none runs into the next sentence.
The libraries are the extra `study` of the package, each imported where it is used.
"""

import importlib
import io
import logging
import operator
import re
import unicodedata
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, explain_missing_extra

LARGEST_BYTES = 100 << 20  # of a file
LARGEST_XML_BYTES = 32 << 20  # of the unpacked text of a DOCX file, of which a parser holds some thirty copies
VISIBLE = "//text()[not(ancestor::head or ancestor::script or ancestor::style or ancestor::noscript)]"
UNEXTRACTED = (4, 1000)  # a page is read badly if it has 4 times the extracted characters, and 1,000 more
MOST_UNREADABLE = 0.1  # part of a PDF page's characters that are no letters of any script


class UnreadableError(Exception):
    """A file without text that can be read; the message says why."""


Text = tuple[str, str]
"""The text of a file, and a warning if some of it could not be read, else empty."""


def read(path: Path) -> Text:
    """Read the text of a file, by its suffix, which is one of `READERS`.

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
    text, warning = READERS[path.suffix.lower()](content)
    if not text.strip():
        raise UnreadableError("holds no text")
    return text, warning


def plain(content: bytes) -> Text:
    """Decode text and Markdown."""
    try:
        return content.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 text (byte {error.start})") from None


def html(content: bytes | str) -> Text:
    """Extract the content of a page, without navigation, comments, footers and advertisements."""
    trafilatura = _library("trafilatura", "HTML and DOCX")
    with _one_line_errors("HTML"):
        tree = trafilatura.load_html(content)
        visible = " ".join(" ".join([] if tree is None else tree.xpath(VISIBLE)).split())
        text = trafilatura.extract(content, include_comments=False) or visible
    factor, more = UNEXTRACTED
    badly = len(visible) > factor * len(text) + more
    share = f"{len(text) / max(1, len(visible)):.0%}"
    return re.sub(r"\s*\n", "\n\n", text), f"only {share} of the page's text was recognised as content" * badly


def docx(content: bytes) -> Text:
    """Extract paragraphs, tables, lists and notes of a Word document, tracked changes taken as accepted."""
    mammoth = _library("mammoth", "DOCX")
    if content.startswith(b"\xd0\xcf\x11\xe0"):  # an OLE file, in which Office keeps encrypted documents and old ones
        raise UnreadableError("encrypted, or in the format of Word before 2007")
    with _one_line_errors("a Word document"):
        with zipfile.ZipFile(io.BytesIO(content)) as package:  # which never unpacks more of a part than it declares
            parts = [part for part in package.infolist() if part.filename.endswith((".xml", ".rels"))]
        size = sum(part.file_size for part in parts)
        if size > LARGEST_XML_BYTES:  # kilobytes of zip can hold terabytes
            raise UnreadableError(f"unpacks to {size >> 20:,} MB of text; read are up to {LARGEST_XML_BYTES >> 20} MB")
        page = mammoth.convert_to_html(io.BytesIO(content), convert_image=lambda image: []).value
        return html(f"<html><body><article>{page}</article></body></html>")


def pdf(content: bytes) -> Text:
    """Extract the text layer of a PDF, page after page, lines joined to paragraphs."""
    pypdf = _library("pypdf", "PDF")
    with _one_line_errors("a PDF"):
        try:
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableError("encrypted; save it without a password")
        except pypdf.errors.DependencyError:
            raise UnreadableError("encrypted with AES, which takes the package cryptography") from None
        pages = [_paragraphs(page.extract_text()) for page in reader.pages]
    if not any(pages):
        raise UnreadableError(f"no text on any of its {len(pages)} pages: a scan needs text recognition (OCR) first")
    problems = []
    for problem, has_problem in (("no text", operator.not_), ("garbled text", _is_garbled)):
        if bad := [number for number, page in enumerate(pages, start=1) if has_problem(page)]:
            problems.append(f"{len(bad)} of {len(pages)} pages hold {problem}, the first is page {bad[0]}")
    return "\n\n".join(filter(None, pages)), "; ".join(problems)


READERS: dict[str, Callable[[bytes], Text]] = {
    **dict.fromkeys((".md", ".txt"), plain),
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
        raise UnreadableError(f"not {kind}, or damaged: {type(error).__name__}{reason and f': {reason}'}") from None
    finally:
        logging.disable(logging.NOTSET)


def _paragraphs(text: str) -> str:
    """Join the lines of a page to paragraphs, which blank lines part, and words that a line's end hyphenates."""
    paragraphs = re.split(r"\n[ \t]*\n", text)
    joined = (re.sub(r"(?<=[^\W\d_])[-\u00ad\u2010][ \t]*\n[ \t]*(?=[a-zß-ÿ])", "", part) for part in paragraphs)
    return "\n\n".join(" ".join(part.split()) for part in joined if part.strip())


def _is_garbled(page: str) -> bool:
    """Whether a page's font does not say which letters it shows: replacement, private and control characters."""
    text = page.replace("\n", "")
    unreadable = sum(char == "\ufffd" or unicodedata.category(char) in ("Co", "Cn", "Cc") for char in text)
    return unreadable > MOST_UNREADABLE * len(text)
