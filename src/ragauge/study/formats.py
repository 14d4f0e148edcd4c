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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, explain_missing_extra
from ragauge.study import html_tree, pdf_pages, web_pages
from ragauge.study.errors import UnreadableError
from ragauge.text import clean

LARGEST_BYTES = 100 << 20  # of a file
MIN_EXTRACTED = 0.1  # part of a page's characters below which the page is read badly,
UNEXTRACTED = (4, 1000)  # as it is if it has 4 times the extracted characters, and 1,000 more
FRONT_MATTER = re.compile(
    r"\A(---|\+\+\+)[ \t]*\n([\w-]+[ \t]*[:=].*?\n)(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL
)
STATED_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*([\"']?)([^\s>|].*?)\1[ \t]*$", re.MULTILINE | re.IGNORECASE
)
HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$|^(\S.*)\n=+[ \t]*$", re.MULTILINE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
# of Word, which mammoth reads as a paragraph
STYLES = "p[style-name='Title'] => h1:fresh\np.Title => h1:fresh"
UNREAD = re.compile("w:(sym|altChunk)")
BACK_LINK = "\u2191"  # of mammoth, from a note to its mark in the text


@dataclass(frozen=True)
class Content:
    text: str
    title: str = ""  # that it states
    warning: str = ""  # of what could not be read
    left_out: float = 0.0  # share of a page's characters that are no content
    omissions: str = ""  # what is no content: navigation, running lines, hidden text


def read(path: Path) -> Content:
    """Read the text of a file, by its suffix, which is one of `READERS`.

    Raises:
        UnreadableError: it is too large, empty, encrypted, damaged, without text, or not what its
            suffix says.
        UserError: the library that reads it is missing.
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
    read = READERS[path.suffix.lower()](content)
    if not read.text.strip():
        raise UnreadableError("holds no text")
    return replace(read, text=clean(read.text), title=" ".join(clean(read.title).split()))


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
    if stated:
        return Content(text, stated[2])
    heading = _heading(FENCED.sub("", text))
    return Content(text, re.sub(r"[*`]|\[([^]]*)\]\([^)]*\)|\{[^}]*\}$", r"\1", heading))


def _heading(text: str) -> str:
    """Return the first heading of Markdown; empty where it has none."""
    heading = HEADING.search(text)
    return (heading[1] or heading[2]).rstrip(" \t#") if heading else ""


def html(content: bytes) -> Content:
    """Read the content of a page, without navigation, footers and advertisements."""
    trafilatura = _library("trafilatura", "HTML")
    with _one_line_errors("HTML"):
        text, title, left_out, visible = web_pages.read(content, trafilatura)
    size = visible - left_out.total()
    share = size / max(1, visible)
    is_poor = share < MIN_EXTRACTED or visible > UNEXTRACTED[0] * size + UNEXTRACTED[1]
    warning = f"only {share:.0%} of the page's text was recognised as content" if is_poor else ""
    return Content(text, title, warning, 1 - share, _counted(left_out))


def docx(content: bytes) -> Content:
    """Read headings, paragraphs, tables, lists, equations and notes of a Word document.

    Tracked changes are taken as accepted.
    """
    mammoth = _library("mammoth", "DOCX")
    lxml_html = _library("lxml.html", "DOCX")
    from ragauge.study import word

    with _one_line_errors("a Word document"):
        document, title, characters, left_out = word.prepare(content)
        page = mammoth.convert_to_html(document, convert_image=lambda image: [], style_map=STYLES)
        tree = lxml_html.fromstring(f"<div>{page.value.replace(BACK_LINK, '')}</div>")
        read = "".join(tree.text_content().split())
        left_out["text in unknown places"] += (characters - Counter(read)).total()
        left_out["symbols and embedded texts"] = len(UNREAD.findall(str(page.messages)))
        left_out += html_tree.repair(tree)
        text = html_tree.markdown(tree)
    return Content(text, title or _heading(text), omissions=_counted(left_out))


def pdf(content: bytes) -> Content:
    """Read the text of a PDF, page after page: paragraphs, tables, columns, filled fields."""
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
        pages = pdf_pages.read(reader.pages)
        unread = sum((page.unread for page in pages), pdf_pages.unread_parts(reader))
    texts = [page.text for page in pages if page.text]
    if not texts:
        raise UnreadableError(
            f"no text on any of its {len(pages)} pages: a scan needs text recognition (OCR) first"
        )
    running = sorted(line for page in pages for line in page.running)
    omissions = [f"{len(running)} running lines, the last {running[-1]!r}"] if running else []
    omissions += [f"{count} {kind}" for kind, count in unread.items()]
    warning = "; ".join(pdf_pages.warnings(pages))
    return Content("\n\n".join(texts), warning=warning, omissions="; ".join(omissions))


READERS = {
    ".md": markdown,
    ".txt": plain,
    **dict.fromkeys((".html", ".htm", ".xhtml"), html),
    ".pdf": pdf,
    ".docx": docx,
}


def _counted(left_out: Counter[str]) -> str:
    return ", ".join(f"{name} ({count} characters)" for name, count in left_out.items())


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
    # parsers of foreign files fail in any way, by recursion and missing keys among them
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise UnreadableError(
            f"not {kind}, or damaged: {type(error).__name__}{reason and f': {reason}'}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
