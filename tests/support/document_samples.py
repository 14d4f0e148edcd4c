"""Small documents of the kinds that are often read badly, with what must and must not be read from
each.
"""

from typing import NamedTuple

from study_files import docx, paragraph, pdf, placed_pdf, row


class Sample(NamedTuple):
    content: bytes
    holds: tuple[str, ...]  # word for word, line ends and blank lines included
    lacks: tuple[str, ...] = ()
    warning: str = ""  # part of the warning
    title: str = ""


def column(x, lines):
    return [(x, 700 - 12 * i, line) for i, line in enumerate(lines)]


def by_rows(*columns):
    return sorted(
        (one for each in columns for one in each), key=lambda placed: (-placed[1], placed[0])
    )


LEFT = [
    "The lighthouse stands on the cliff above",
    "the harbour and was built by the town in",
    "the year when the old pier had broken.",
    "Its lamp was lit by Greta Holm who kept",
    "the light for thirty years.",
]
RIGHT = [
    "The ferry leaves the harbour twice a day",
    "and carries forty passengers to the other",
    "shore. It does not run in a storm, when",
    "the bridge in the north is the only way",
    "to reach the island.",
]
LEFT_TEXT = " ".join(LEFT)
RIGHT_TEXT = " ".join(RIGHT)
PUMPS = [
    ("Pump", "Pressure", "Price"),
    ("P7", "12 bar", "90"),
    ("P9 large", "16 bar", "140"),
    ("P12", "25 bar", "210"),
]
ROWS = "\n".join(f"| {' | '.join(cells)} |" for cells in PUMPS)
TABLE = [
    (60 + 150 * i, 700 - 14 * j, cell)
    for j, cells in enumerate(PUMPS)
    for i, cell in enumerate(cells)
]
WRAPPED = [(60, 644, "P14"), (210, 644, "30 bar, only"), (360, 644, "300"), (210, 632, "in summer")]
YEARS = [
    [f"Part {n} tells of year 18{n}4.", f"It rained in {20 - n} of its weeks."] for n in range(1, 5)
]
BOOK = [
    [(60, 800, "Port Amsel Gazette"), (500, 800, f"Page {n}"), *column(60, lines)]
    for n, lines in enumerate(YEARS, 1)
]
FAULTS = [
    ("The pump makes a loud noise when", "Open the valve and let out the"),
    ("it is switched on", "air, then close it"),
    ("The lamp does not light up when", "Change the fuse in the box on"),
    ("the button is pressed", "the left wall"),
    ("The door of the lid cannot be", "Turn the key twice and press"),
    ("opened with the key", "the handle down"),
]
STEPS = [
    *column(60, ["1.", "2.", "3."]),
    *column(90, ["Close the valve.", "Open the lid.", "Wait an hour."]),
]
GLUED = ["Thelighthousestandsonthecliffabovetheharbour", "andwasbuiltbythetownlongago."]
PROSE = (
    "The harbour of Port Amsel is the oldest of the coast and its master lives in the tower by the gate. "
    * 6
)
MENU = "".join(f"<li><a href='/{i}'>Entry {i}</a></li>" for i in range(9))
LINKS = "".join(
    f"<li><a href='/{i}'>Entry {i} of a long list of links to other pages</a></li>"
    for i in range(200)
)
PAGE = f"""<html><head><title>Harbour rules</title></head><body><nav><ul>{MENU}</ul></nav><main><h1>Rules</h1>
<p>{PROSE}</p><h2>Pressure</h2><aside class="admonition warning"><p class="admonition-title">Warning</p>
<p>Never exceed 12 bar.</p></aside><ul><li>Close the valve.<ul><li>Slowly.</li></ul></li><li>Wait.</li></ul>
<ol start="3"><li>Open it.</li></ol><table><tr><th>Pump</th><th>Bar</th></tr><tr><td>P7</td><td><p>12</p></td></tr>
</table><p>{PROSE}</p></main><aside class="sidebar"><p>Read our other pages, and
subscribe to them.</p></aside><footer>Copyright Port Amsel</footer></body></html>"""
FORM = """<html><head><title>Harbour</title></head><body><form method="post" id="aspnetForm"><input type="hidden"/>
<div><h1>Harbour of Port Amsel</h1><p>The lighthouse was lit first in <time>1874</time> by Greta Holm.</p></div>
<select><option>English</option><option>German</option></select></form></body></html>"""
QUESTIONS = """<html><body><h1>Questions</h1><details><summary>When does the bakery open?</summary>At six in the
morning.</details><details><summary>What does it sell?</summary><p>Rye bread.</p></details><fieldset>
<legend>Prices</legend>A loaf costs 4 crowns.</fieldset></body></html>"""
REPORT = docx(
    paragraph("Annual report", "Title"),
    paragraph("Pumps", "Heading1"),
    paragraph("Close the valve.", numbers=1),
    paragraph("Slowly.", numbers=1, level=1),
    paragraph("First step.", numbers=2),
    paragraph("Second step.", numbers=2),
    f"<w:tbl>{''.join(row(*cells) for cells in PUMPS)}</w:tbl>",
    paragraph("The end."),
    title="Report of 1874",
)
NOTES = """---
title: "The bakery"
tags: [bread]
---
Intro text.

# Opening *hours*

At six.
"""
FORMS = "Das Cafe\u0301 der o\ufb03ce,\u00a043\u00a0m, Leucht\u00adturm."

SAMPLES = {
    "table.pdf": Sample(
        placed_pdf([(60, 740, "Prices of the pumps."), *TABLE, (60, 600, "All prices in crowns.")]),
        (f"Prices of the pumps.\n\n{ROWS}\n\nAll prices in crowns.",),
    ),
    "wrapped-table.pdf": Sample(
        placed_pdf([*TABLE, *WRAPPED]), ("| P14 | 30 bar, only in summer | 300 |",)
    ),
    "running-heads.pdf": Sample(
        placed_pdf(*BOOK), tuple(map(" ".join, YEARS)), ("Gazette", "Page")
    ),
    "columns-by-row.pdf": Sample(
        placed_pdf([(60, 740, "Port Amsel"), *by_rows(column(60, LEFT), column(330, RIGHT))]),
        (f"Port Amsel\n\n{LEFT_TEXT}\n\n{RIGHT_TEXT}",),
    ),
    "columns-and-table.pdf": Sample(
        placed_pdf(
            [
                *by_rows(column(60, LEFT), column(330, RIGHT)),
                *((x / 2, y - 90, cell) for x, y, cell in TABLE),
            ]
        ),
        (f"{LEFT_TEXT}\n\n{RIGHT_TEXT}\n\n{ROWS}",),
    ),
    "short-columns.pdf": Sample(
        placed_pdf(by_rows(column(60, LEFT[:3]), column(275, RIGHT[:3]))),
        (" ".join(LEFT[:3]), " ".join(RIGHT[:3])),
    ),
    "table-of-sentences.pdf": Sample(
        placed_pdf(
            [
                (60 + 270 * j, 700 - 12 * i - 14 * (i // 2), cell)
                for i, row in enumerate(FAULTS)
                for j, cell in enumerate(row)
            ]
        ),
        (
            "| The pump makes a loud noise when it is switched on "
            "| Open the valve and let out the air, then close it |",
        ),
    ),
    "columns-in-order.pdf": Sample(
        placed_pdf([*column(60, LEFT), *column(330, RIGHT[:-1])]), (LEFT_TEXT, " ".join(RIGHT[:-1]))
    ),
    "steps.pdf": Sample(
        placed_pdf(by_rows(STEPS)),
        ("1. Close the valve. 2. Open the lid. 3. Wait an hour.",),
        ("|",),
    ),
    "glued.pdf": Sample(
        pdf(GLUED),
        ("harbour",),
        warning="1 of 1 pages hold words run together, the first is page 1",
    ),
    "stamp.pdf": Sample(
        pdf([LEFT_TEXT], ["Scan 12"], image=2),
        (LEFT_TEXT,),
        warning="1 of 2 pages hold almost no text, the first is page 2",
    ),
    "outlines.pdf": Sample(
        pdf([LEFT_TEXT] * 9, ["x"]),
        (LEFT_TEXT,),
        warning="1 of 2 pages hold almost no text, the first is page 2",
    ),
    "table-and-form.pdf": Sample(
        placed_pdf(TABLE, form=LEFT_TEXT),
        (LEFT_TEXT,),
        warning="1 of 1 pages hold columns or cells that may be mixed up, the first is page 1",
    ),
    "report.docx": Sample(
        REPORT,
        (
            "# Annual report\n\n# Pumps\n\n- Close the valve.",
            "- Close the valve.\n\n  - Slowly.\n\n1. First step.",
            "1. First step.\n\n2. Second step.",
            "# Pumps",
            f"{ROWS}\n\nThe end.",
        ),
        title="Report of 1874",
    ),
    "page.html": Sample(
        PAGE.encode(),
        (
            "# Rules\n\nThe harbour",
            "## Pressure\n\nWarning\n\nNever exceed 12 bar.",
            "- Close the valve.\n\n  - Slowly.\n\n- Wait.\n\n3. Open it.",
            "| Pump | Bar |\n| P7 | 12 |\n\nThe harbour",
        ),
        ("Entry", "subscribe", "Copyright"),
        title="Harbour rules",
    ),
    "form.html": Sample(
        FORM.encode(),
        ("# Harbour of Port Amsel\n\nThe lighthouse was lit first in 1874 by Greta Holm.",),
        ("German",),
        title="Harbour",
    ),
    "questions.html": Sample(
        QUESTIONS.encode(),
        (
            "When does the bakery open? At six in the morning.",
            "What does it sell?\n\nRye bread.",
            "Prices\n\nA loaf costs 4 crowns.",
        ),
        title="Questions",
    ),
    "links.html": Sample(
        f"<ul>{LINKS}</ul><article><p>{PROSE}</p></article>".encode(),
        (PROSE.strip(),),
        ("Entry",),
        "of the page's text was recognised as content",
    ),
    "notes.md": Sample(
        NOTES.encode(),
        ("Intro text.\n\n# Opening *hours*\n\nAt six.",),
        ("tags", "---"),
        title="The bakery",
    ),
    "unicode.txt": Sample(FORMS.encode(), ("Das Café der office, 43 m, Leuchtturm.",)),
}
