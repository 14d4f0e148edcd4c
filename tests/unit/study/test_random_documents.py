"""Random pages and Word documents, against a second reader: a plain walk of their elements."""

import random
import re

import pytest

from ragauge.study import formats
from study_files import MAIN, OFFICE, docx, paragraph

for library in ("trafilatura", "mammoth", "pypdf"):
    pytest.importorskip(library, reason="takes the packages of the extra study")

SEEDS = range(300)
WORDS = ["tea", "harbour", "valve 25", "10", "x", "rye 7", "Osprey", "m"]


def random_line(rng):
    kinds = {
        "{}": 4,
        "10<sup>{n}</sup> ": 2,
        "m<sup>{n}</sup> ": 1,
        "<b>10</b><i><sup>-{n}</sup></i> ": 1,
        "25<sup><a href='#n{n}'>{n}</a></sup> ": 1,
        "<span hidden>{}</span>": 1,
        "<em style='DISPLAY : None'>{}</em>": 1,
        "<del>{}</del>": 1,
        "<u style='text-decoration: line-through'>{}</u>": 1,
        "H<sub>{n}</sub>O ": 1,
    }
    chosen = rng.choices(list(kinds), list(kinds.values()), k=rng.randint(1, 6))
    return "start " + " ".join(
        kind.format(rng.choice(WORDS), n=rng.randint(2, 30)) for kind in chosen
    )


def random_table(rng):
    """Rows of full width, where no cells of two sizes overlap."""
    width = rng.randint(2, 5)
    height = rng.randint(2, 5)
    taken = set()
    rows = []
    for y in range(height):
        cells = []
        for x in range(width):
            if (y, x) in taken:
                continue
            wide = 1
            while x + wide < width and (y, x + wide) not in taken and rng.random() < 0.25:
                wide += 1
            high = min(rng.choice([1, 1, 1, 2, 3]), height - y)
            taken |= {(y + j, x + i) for j in range(high) for i in range(wide)}
            reach = 0 if y + high == height and high > 1 and rng.random() < 0.5 else high
            spans = f" colspan={wide}" * (wide > 1) + f" rowspan={reach}" * (high > 1)
            cells.append(f"<td{spans}>{random_line(rng)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def random_list(rng):
    options = rng.choice(["", " start=4", " reversed", " type=a", " type=I", " reversed start=9"])
    items = (
        f"<li{rng.choice(['', '', ' value=17'])}>{random_line(rng)}</li>"
        for _ in range(rng.randint(1, 4))
    )
    return f"<ol{options}>{''.join(items)}</ol>"


def is_hidden(element):
    style = re.sub(r"\s", "", element.get("style", "")).lower()
    shown = "display:none" not in style and "line-through" not in style
    return element.get("hidden") is not None or element.tag == "del" or not shown


def walked_line(element):
    """The text of an element; a sign before what is raised after a digit or a letter."""
    text = element.text or ""
    for child in element:
        if not is_hidden(child):
            inner = walked_line(child)
            raised = child.tag == "sup" or (len(child) == 1 and child[0].tag == "sup")
            if child.find("a") is not None:
                inner = f"[{inner}]"
            elif child.tag in ("sup", "i") and raised and "^" not in inner:
                inner = f"^{inner}"
            text += inner
        text += child.tail or ""
    return text


def line_of(element):
    return " ".join(walked_line(element).split())


def walked_table(table):
    grid = {}
    rows = list(table.iter("tr"))
    for y, row in enumerate(rows):
        for cell in row:
            x = next(x for x in range(99) if (y, x) not in grid)
            high = int(cell.get("rowspan", 1)) or len(rows) - y
            for j in range(high):
                for i in range(int(cell.get("colspan", 1))):
                    grid[y + j, x + i] = line_of(cell)
    lines = [[text for (y, _), text in sorted(grid.items()) if y == n] for n in range(len(rows))]
    if all(len(row) < 2 for row in rows):
        return "\n\n".join(line_of(cell) for row in rows for cell in row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def walked_list(ordered):
    backwards = ordered.get("reversed") is not None
    number = int(ordered.get("start", len(ordered) if backwards else 1))
    roman = ["", *["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"]]
    lines = []
    for item in ordered:
        number = int(item.get("value", number))
        shown = str(number)
        if ordered.get("type") == "a":
            shown = "abcdefghijklmnopqrstuvwxyz"[number - 1]
        elif ordered.get("type") == "I":
            shown = roman[number % 10] if number < 10 else "X" + roman[number - 10]
        lines.append(f"{shown}. {line_of(item)}")
        number -= 1 if backwards else -1
    return "\n\n".join(lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_page_is_read_as_a_plain_walk_reads_it(seed):
    import lxml.html

    rng = random.Random(seed)
    makers = [random_table, random_list, lambda rng: f"<p>{random_line(rng)}</p>"]
    blocks = [rng.choice(makers)(rng) for _ in range(rng.randint(1, 5))]
    page = f"<html><body>{''.join(blocks)}</body></html>"
    readers = {"table": walked_table, "ol": walked_list, "p": line_of}
    body = lxml.html.fromstring(page).find("body")
    expected = "\n\n".join(readers[element.tag](element) for element in body)
    assert formats.html(page.encode()).text == expected


FORMATS = {
    "decimal": ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
    "upperLetter": ["A", "B", "C", "D", "E", "F", "G", "H", "I"],
}
FORMATS["lowerRoman"] = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]


def numbered_docx(blocks, levels, styled):
    """A document of which each block is (text, level), or (text, None) without a number."""
    level_xml = "".join(
        f"<w:lvl w:ilvl='{i}'><w:start w:val='{start}'/><w:numFmt w:val='{kind}'/>"
        f"<w:pStyle w:val='Level{i}'/><w:lvlText w:val='{text}'/></w:lvl>"
        for i, (kind, start, text) in enumerate(levels)
    )
    numbering = (
        f"<w:numbering xmlns:w='{MAIN}'><w:abstractNum w:abstractNumId='5'>{level_xml}"
        "</w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='5'/></w:num></w:numbering>"
    )
    styles = "".join(
        f"<w:style w:type='paragraph' w:styleId='Level{i}'><w:name w:val='Level {i}'/><w:pPr>"
        "<w:numPr><w:numId w:val='1'/></w:numPr></w:pPr></w:style>"
        for i in range(len(levels))
    )
    written = [
        paragraph(text)
        if level is None
        else paragraph(text, style=f"Level{level}")
        if styled
        else paragraph(text, numbers=1, level=level)
        for text, level in blocks
    ]
    return docx(
        *written,
        parts={
            "word/numbering.xml": numbering,
            "word/styles.xml": f"<w:styles xmlns:w='{MAIN}'>{styles}</w:styles>",
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_numbers_of_a_word_document_are_those_of_a_plain_count(seed):
    rng = random.Random(seed)
    levels = []
    for i in range(3):
        above = "".join(f"%{n + 1}." for n in range(i)) if rng.random() < 0.7 else ""
        levels.append((rng.choice(list(FORMATS)), rng.choice([1, 1, 3]), f"{above}%{i + 1}"))
    counts = [start - 1 for _, start, _ in levels]
    blocks = []
    expected = []
    for n in range(rng.randint(1, 6)):
        level = rng.choice([None, 0, 0, 1, 2])
        blocks.append((f"text {n}", level))
        if level is None:
            expected.append(f"text {n}")
            continue
        counts[level] += 1
        for deeper in range(level + 1, 3):
            counts[deeper] = levels[deeper][1] - 1
        shown = levels[level][2]
        for i, (kind, start, _) in enumerate(levels):
            shown = shown.replace(f"%{i + 1}", FORMATS[kind][max(counts[i], start) - 1])
        expected.append(f"{shown} text {n}")
    made = formats.docx(numbered_docx(blocks, levels, rng.random() < 0.5)).text
    assert [line.strip() for line in made.split("\n\n")] == expected


def word(*runs, properties=""):
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(runs)}</w:p>"


def run(text, mark=""):
    return f"<w:r><w:rPr>{mark}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


MATH = f"xmlns:m='{OFFICE}/officeDocument/2006/math'"
TEXT = "<m:r><m:t>{}</m:t></m:r>"


def equation(rng, depth=0):
    """An equation of Word, of MathML, and in one line."""
    letter = rng.choice("abcxyz")
    if depth == 2 or rng.random() < 0.3:
        return TEXT.format(letter), f"<mi>{letter}</mi>", letter
    first, second = (equation(rng, depth + 1) for _ in range(2))
    one, other = (
        text if re.fullmatch(r"\w", text) else f"({text})" for text in (first[2], second[2])
    )
    kind = rng.choice(["sum", "power", "index", "fraction", "root"])
    if kind == "sum":
        joined = (first[0] + TEXT.format("+") + second[0], f"{first[1]}<mo>+</mo>{second[1]}")
        return joined[0], f"<mrow>{joined[1]}</mrow>", f"{first[2]}+{second[2]}"
    pair = f"<mrow>{first[1]}</mrow><mrow>{second[1]}</mrow>"
    if kind == "power":
        omml = f"<m:sSup><m:e>{first[0]}</m:e><m:sup>{second[0]}</m:sup></m:sSup>"
        return omml, f"<msup>{pair}</msup>", f"{one}^{other}"
    if kind == "index":
        omml = f"<m:sSub><m:e>{first[0]}</m:e><m:sub>{second[0]}</m:sub></m:sSub>"
        return omml, f"<msub>{pair}</msub>", f"{one}_{other}"
    if kind == "fraction":
        omml = f"<m:f><m:num>{first[0]}</m:num><m:den>{second[0]}</m:den></m:f>"
        return omml, f"<mfrac>{pair}</mfrac>", f"{one}/{other}"
    return f"<m:rad><m:deg/><m:e>{first[0]}</m:e></m:rad>", f"<msqrt>{first[1]}</msqrt>", f"√{one}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_equation_is_one_line_with_its_parentheses(seed):
    omml, mathml, expected = equation(random.Random(seed))
    page = f"<html><body><p>It is <math>{mathml}</math></p></body></html>"
    indexed = expected.replace("x_", "x_")
    assert formats.html(page.encode()).text == f"It is {indexed}"
    document = docx(word(run("It is "), f"<m:oMath {MATH}>{omml}</m:oMath>"))
    assert formats.docx(document).text == f"It is {expected}"


WORD = {
    "a mark that is off": (word(run("Tea", "<w:vanish w:val='0'/>")), "Tea"),
    "deleted twice": (word(run("Tea"), run("x", "<w:dstrike/>")), "Tea"),
    "a field": (word(f"<w:fldSimple w:instr='REF x'>{run('Tea')}</w:fldSimple>"), "Tea"),
    "a direction": (word(f"<w:dir w:val='ltr'>{run('Tea')}</w:dir>"), "Tea"),
    "a row that begins later": (
        "<w:tbl>{}<w:tr><w:trPr><w:gridBefore w:val='1'/></w:trPr>{}</w:tr></w:tbl>".format(
            f"<w:tr>{'<w:tc><w:p/></w:tc>' * 0}"
            + "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in "ab")
            + "</w:tr>",
            f"<w:tc>{paragraph('c')}</w:tc>",
        ),
        "| a | b |\n|  | c |",
    ),
    "a sum": (
        word(
            f"<m:oMath {MATH}><m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr>"
            f"<m:sub>{TEXT.format('i=1')}</m:sub><m:sup>{TEXT.format('n')}</m:sup>"
            f"<m:e>{TEXT.format('i')}</m:e></m:nary><m:d><m:e>{TEXT.format('y')}</m:e></m:d></m:oMath>"
        ),
        "∑_(i=1)^n i (y)",
    ),
}


@pytest.mark.parametrize("kind", WORD)
@pytest.mark.parametrize("is_strict", [False, True])
def test_what_word_shows_is_read(kind, is_strict):
    written, expected = WORD[kind]
    assert formats.docx(docx(written, is_strict=is_strict)).text == expected


def test_headers_and_comments_of_word_are_named():
    header = f"<w:hdr xmlns:w='{MAIN}'>{paragraph('Harbour')}</w:hdr>"
    made = formats.docx(docx(paragraph("Tea."), parts={"word/header1.xml": header}))
    assert made.text == "Tea."
    assert made.omissions == "headers (7 characters)"


RAISED = {
    "3<sup>1</sup>/<sub>2</sub>": "3 1/2",
    "<sup>1</sup>/<sub>2</sub>": "1/2",
    "1<sup>st</sup>": "1st",
    "x<sup>n+1</sup>": "x^(n+1)",
    "10<sup>n</sup>": "10^n",
    "(a)<sup>2</sup>": "(a)^2",
    "10<span style='vertical-align: super'>6</span>": "10^6",
    "30<a href='#n'><sup>2</sup></a>": "30[2]",
    "30<sup>[2]</sup>": "30[2]",
    "<sup>14</sup>C": "14C",
    "101<sub>2</sub>": "101_2",
}


@pytest.mark.parametrize("written", RAISED)
def test_raised_text_is_not_glued_to_numbers(written):
    page = f"<html><body><p>It is {written}</p></body></html>"
    assert formats.html(page.encode()).text == f"It is {RAISED[written]}"
