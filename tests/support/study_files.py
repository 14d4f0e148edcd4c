"""Documents of a study as offices write them, made of bytes: PDF files with a text layer, Word documents."""

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape

OFFICE = "http://schemas.openxmlformats.org"
MAIN = f"{OFFICE}/wordprocessingml/2006/main"


def pdf(*pages: Sequence[str]) -> bytes:
    """A PDF of one font; each page is its lines, one without lines a page that shows nothing."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        stream = f"BT /F1 11 Tf 50 780 Td 14 TL {shown} ET"
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {resources} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    made, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(made))
        made += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n"
    return made + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def paragraph(text: str) -> str:
    """A paragraph of a Word document."""
    return f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def row(*cells: str) -> str:
    return "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells) + "</w:tr>"


def docx(*blocks: str, declared: str = "") -> bytes:
    """A Word document of paragraphs and tables; `declared` stands before its root element."""
    relation = f'Id="r1" Type="{OFFICE}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"'
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{OFFICE}/package/2006/content-types">'
        f'<Default Extension="rels" ContentType="{rels}"/>'
        f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{OFFICE}/package/2006/relationships"><Relationship {relation}/>'
        "</Relationships>",
        "word/document.xml": f'{declared}<w:document xmlns:w="{MAIN}"><w:body>{"".join(blocks)}</w:body></w:document>',
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return made.getvalue()
