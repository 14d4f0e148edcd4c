"""Word documents before mammoth makes HTML of them: what it passes over takes a form it reads."""

import io
import re
import zipfile
from collections import Counter
from copy import deepcopy

from lxml import etree

from ragauge.study.errors import UnreadableError
from ragauge.study.stylesheets import stylesheet
from ragauge.study.word_numbers import Numbering

# of unpacked text, of which a parser holds some thirty copies
LARGEST_XML_BYTES = 32 << 20
STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")  # namespaces of strict files
TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
TEXTS = ("document", "footnotes", "endnotes")
UNREAD = {  # root of a part -> its name
    "hdr": "headers",
    "ftr": "footers",
    "comments": "comments",
    "dataModel": "diagrams",
    "chartSpace": "charts",
}


def prepare(content: bytes) -> tuple[io.BytesIO, str, Counter[str], Counter[str]]:
    """Unpack a document and repair its texts.

    Returns:
        The document, its title, the characters of its texts, and those that were left out, by kind.

    Raises:
        UnreadableError: it is encrypted, or too large.
    """
    # an OLE file, in which Office keeps encrypted documents and old ones
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableError("encrypted, or in the format of Word before 2007")
    # which never unpacks more of a part than it declares
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        parts = [p for p in package.infolist() if p.filename.endswith((".xml", ".rels"))]
        size = sum(part.file_size for part in parts)
        if size > LARGEST_XML_BYTES:  # kilobytes of zip can hold terabytes
            raise UnreadableError(
                f"unpacks to {size >> 20:,} MB of text; read are up to {LARGEST_XML_BYTES >> 20} MB"
            )
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        texts = (STRICT.sub(TRANSITIONAL, package.read(part)) for part in parts)
        trees = [etree.fromstring(text, parser) for text in texts]
    roots = {etree.QName(tree).localname: tree for tree in trees}
    none = etree.Element("none")
    left_out = Counter[str]()
    repair = stylesheet("word.xsl")
    numbering = Numbering(repair(roots.get("numbering", none)).getroot(), left_out)
    characters = Counter[str]()
    title = ""
    repaired = io.BytesIO()
    with zipfile.ZipFile(repaired, "w") as target:
        for part, tree in zip(parts, trees, strict=True):
            name = etree.QName(tree).localname
            left_out[UNREAD.get(name, "")] += len(_text(tree))
            if part.filename == "docProps/core.xml":
                title = tree.findtext("{*}title") or ""
            if name in TEXTS:
                tree.append(deepcopy(roots.get("styles", none)))
                tree = _repaired(repair(tree).getroot(), numbering, left_out)
                characters.update(_text(tree))
            if name != "numbering":  # which is written into the texts
                target.writestr(part.filename, etree.tostring(tree))
    del left_out[""]
    return repaired, title, characters, left_out


def _repaired(tree: etree._Element, numbering: Numbering, left_out: Counter[str]) -> etree._Element:
    for name in ("hidden", "deleted"):
        dropped = "".join(element.text or "" for element in tree.iter(name))
        left_out[f"{name} text"] += len(dropped)
        etree.strip_elements(tree, name, with_tail=False)
    for text in tree.iterfind(".//{*}t[@list]"):
        text.text = numbering.label(*text.attrib.values())
    return tree


def _text(tree: etree._Element) -> str:
    """The text of a part, in elements `t`, and `v` in charts, without white space."""
    return "".join("".join(element.text or "" for element in tree.iter("{*}t", "{*}v")).split())
