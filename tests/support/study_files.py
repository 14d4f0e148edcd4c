"""Documents of a study as offices write them, made of bytes: PDF files with a text layer, Word
documents.
"""

import io
import zipfile
from itertools import chain
from xml.sax.saxutils import escape

from ragauge.testing import write_checkpoint

OFFICE = "http://schemas.openxmlformats.org"
MAIN = f"{OFFICE}/wordprocessingml/2006/main"


IMAGE = "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 1 >>"
IMAGE += "\nstream\n0\nendstream"
FORM = "/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >>"


def study_arguments(sources, answer="Assam"):
    """Write documents, a question and a tiny model; the arguments of a study that is not run."""
    texts = sources / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    (texts / "tea.md").write_text("Tea is grown in Assam. Coffee is not.")
    (sources / "q.csv").write_text(f"question,answers\nWhere is tea grown?,{answer}\n")
    if not (sources / "model").exists():
        write_checkpoint(sources / "model")
    given = {"documents": "texts", "questions": "q.csv", "model": "model"}
    pairs = ([f"--{option}", str(sources / name)] for option, name in given.items())
    return ["study", *chain.from_iterable(pairs), "--no-run"]


def pdf(*pages, image=0):
    """A PDF of one font; each page is its lines, one without lines a page that shows nothing.

    Args:
        image: number of the page that shows a picture, from 1.
    """
    streams = [
        f"BT /F1 11 Tf 50 780 Td 14 TL {' '.join(f'({line}) Tj T*' for line in lines)} ET"
        for lines in pages
    ]
    return pdf_of_streams(streams, {image: IMAGE} if image else {})


def placed_pdf(*pages, form=""):
    """A PDF whose texts are drawn where they are placed, in the order given.

    Args:
        form: a text on the first page that is drawn as an object of its own.
    """
    streams = [
        " ".join(f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in page) for page in pages
    ]
    shown = f"BT /F1 10 Tf 50 300 Td ({form}) Tj ET"
    streams[0] += " /O1 Do" if form else ""
    return pdf_of_streams(
        streams,
        {1: f"<< {FORM} /Length {len(shown)} >>\nstream\n{shown}\nendstream"} if form else {},
    )


def pdf_of_streams(streams, objects_of=None):
    """A PDF of streams of text; a page of `objects_of` shows, or may show, another object."""
    objects_of = objects_of or {}
    kids = " ".join(f"{5 + 2 * i} 0 R" for i in range(len(streams)))
    widths = " ".join(["500"] * 95)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(streams)} >>",
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /FirstChar 32 /LastChar 126 /Widths [{widths}] >>",
        *(objects_of.values() or ["null"]),
    ]
    for number, stream in enumerate(streams):
        shown = " /XObject << /O1 4 0 R >>" if number + 1 in objects_of else ""
        resources = f"/Resources << /Font << /F1 3 0 R >>{shown} >> /Contents {6 + 2 * number} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {resources} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    made = b"%PDF-1.4\n"
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(len(made))
        made += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n"
    return made + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def paragraph(text, style="", numbers=0, level=0):
    """A paragraph of a Word document.

    Args:
        style: an identifier such as `Heading1`.
        numbers: 1 for an item of a list with bullets, 2 for a numbered one.
    """
    listed = (
        f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{numbers}"/></w:numPr>'
        if numbers
        else ""
    )
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{styled}{listed}</w:pPr><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def row(*cells):
    return "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells) + "</w:tr>"


STRICT = {
    MAIN: "http://purl.oclc.org/ooxml/wordprocessingml/main",
    f"{OFFICE}/officeDocument/2006/math": "http://purl.oclc.org/ooxml/officeDocument/math",
    f"{OFFICE}/officeDocument/2006/relationships": "http://purl.oclc.org/ooxml/officeDocument/relationships",
}


def docx(*blocks, declared="", title="", parts=(), is_strict=False):
    """A Word document of paragraphs and tables; `declared` stands before its root element, and
    `parts` are more of its files, or others.
    """
    more = dict(parts)
    relations = f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{{}}</Relationships>'
    relation = f'<Relationship Id="r1" Type="{OFFICE}/officeDocument/2006/relationships/{{}}" Target="{{}}"/>'
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    levels = [
        "".join(f'<w:lvl w:ilvl="{level}"><w:numFmt w:val="{mark}"/></w:lvl>' for level in (0, 1))
        for mark in ("bullet", "decimal")
    ]
    lists = "".join(
        f'<w:abstractNum w:abstractNumId="{i}">{each}</w:abstractNum>'
        for i, each in enumerate(levels, 1)
    )
    lists += "".join(f'<w:num w:numId="{i}"><w:abstractNumId w:val="{i}"/></w:num>' for i in (1, 2))
    dublin = (
        f'<x xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></x>'
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{OFFICE}/package/2006/content-types">'
        f'<Default Extension="rels" ContentType="{rels}"/>'
        f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'
        f'<Override PartName="/word/numbering.xml" ContentType="{kind}.numbering+xml"/></Types>',
        "_rels/.rels": relations.format(relation.format("officeDocument", "word/document.xml")),
        "word/_rels/document.xml.rels": relations.format(
            relation.format("numbering", "numbering.xml")
            + (relation.replace("r1", "r2").format("styles", "styles.xml") if more else "")
        ),
        "word/numbering.xml": f'<w:numbering xmlns:w="{MAIN}">{lists}</w:numbering>',
        "word/document.xml": f'{declared}<w:document xmlns:w="{MAIN}"><w:body>{"".join(blocks)}</w:body></w:document>',
        **({"docProps/core.xml": dublin} if title else {}),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in (parts | more).items():
            for transitional, strict in STRICT.items() if is_strict else ():
                content = content.replace(transitional, strict)
            package.writestr(name, content)
    return made.getvalue()
