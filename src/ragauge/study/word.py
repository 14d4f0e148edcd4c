"""Word documents before mammoth makes HTML of them: hidden text goes, equations become text."""

import io
import zipfile
from collections import Counter

from lxml import etree

from ragauge.study.errors import UnreadableError

# of unpacked text, of which a parser holds some thirty copies
LARGEST_XML_BYTES = 32 << 20
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
TITLE = "{http://purl.org/dc/elements/1.1/}title"
CORE = "docProps/core.xml"
TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
SIGNS = {f"{MATH}sup": "^", f"{MATH}sub": "_", f"{MATH}den": "/"}


def prepare(content: bytes) -> tuple[io.BytesIO, str, Counter[str]]:
    """Unpack a document and repair its texts.

    Returns: the document, its title, and the characters that were left out by kind.
    Raises UnreadableError: it is encrypted, or too large.
    """
    # an OLE file, in which Office keeps encrypted documents and old ones
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableError("encrypted, or in the format of Word before 2007")
    left_out = Counter[str]()
    title = ""
    repaired = io.BytesIO()
    # which never unpacks more of a part than it declares
    with zipfile.ZipFile(io.BytesIO(content)) as package, zipfile.ZipFile(repaired, "w") as target:
        parts = package.infolist()
        size = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
        if size > LARGEST_XML_BYTES:  # kilobytes of zip can hold terabytes
            limit = f"read are up to {LARGEST_XML_BYTES >> 20} MB"
            raise UnreadableError(f"unpacks to {size >> 20:,} MB of text; {limit}")
        for part in parts:
            text = package.read(part)
            if part.filename == CORE:
                title = etree.fromstring(text, _parser()).findtext(TITLE) or ""
            elif part.filename in TEXTS:
                tree = etree.fromstring(text, _parser())
                left_out["hidden text"] += _drop_hidden(tree)
                _write_equations(tree)
                text = etree.tostring(tree.getroottree())
            target.writestr(part.filename, text)
    return repaired, title, +left_out


def _parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, no_network=True)


def _drop_hidden(tree: etree._Element) -> int:
    """Drop the runs that Word does not show; return their characters."""
    hidden = [mark.getparent().getparent() for mark in tree.iter(f"{WORD}vanish")]
    runs = [run for run in hidden if run.tag == f"{WORD}r"]
    for run in runs:
        run.getparent().remove(run)
    return sum(len("".join(run.itertext())) for run in runs)


def _write_equations(tree: etree._Element) -> None:
    """Write each equation in one line, as a run of text."""
    for paragraph in tree.iter(f"{MATH}oMathPara"):
        paragraph.tag = f"{WORD}ins"  # which mammoth reads
    for equation in list(tree.iter(f"{MATH}oMath")):
        text = "".join(
            SIGNS.get(part.tag, "") + (part.text or "" if part.tag == f"{MATH}t" else "")
            for part in equation.iter()
        )
        tail = equation.tail
        equation.clear()
        equation.tag = f"{WORD}r"
        equation.tail = tail
        etree.SubElement(equation, f"{WORD}t").text = text
