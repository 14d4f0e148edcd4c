"""Documents of kinds that are often read badly: what this reader, and others, take from them."""

import io
import re

import pytest

from document_samples import LEFT_TEXT, PROSE, SAMPLES
from ragauge.study import formats, pdf_pages
from study_files import MAIN, docx, paragraph, pdf_of_streams, row
from tables import rows

for library in ("trafilatura", "mammoth", "pypdf"):
    pytest.importorskip(library, reason="takes the packages of the extra study")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_document_is_read_as_it_looks(tmp_path, name):
    sample = SAMPLES[name]
    (tmp_path / name).write_bytes(sample.content)
    made = formats.read(tmp_path / name)
    for text in sample.holds:
        assert text in made.text
    assert not [text for text in sample.lacks if text in made.text]
    assert made.title == sample.title
    assert sample.warning in made.warning
    assert bool(sample.warning) == bool(made.warning)


# lines of pages, and which of them are running lines
LINES = rows("""
# one head, and page numbers apart from it
[["Gazette      2", a], ["Gazette      3", b], ["Gazette      4", c], ["Gazette      5", d],
  ["Gazette      6", e], ["Gazette      7", f]], [[0], [0], [0], [0], [0], [0]]
# left and right pages
[[Gazette, a, Page 1 of 6], [Amsel, b, Page 2 of 6], [Gazette, c, Page 3 of 6],
  [Amsel, d, Page 4 of 6], [Gazette, e, Page 5 of 6], [Amsel, f, Page 6 of 6]],
  [[0, 2], [0, 2], [0, 2], [0, 2], [0, 2], [0, 2]]
# titles of pages
[[Machine 0, Oil, a], [Machine 1, Oil, b], [Machine 2, Oil, c]], [[], [], []]
# numbers that do not count pages
[[a, "Sum: 4"], [b, "Sum: 9"], [c, "Sum: 7"]], [[], [], []]
# numbers alone
[[a, "4"], [b, "5"], [c, "- 6 -"]], [[1], [1], [1]]
# numbers of another kind
[[a, "4"], [b, "9"], [c, "7"]], [[], [], []]
# heads of chapters
[["Chapter 0      0", a], ["Chapter 0      1", b], ["Chapter 0      2", c],
  ["Chapter 1      3", d], ["Chapter 1      4", e], ["Chapter 1      5", f],
  ["Chapter 2      6", g], ["Chapter 2      7", h], ["Chapter 2      8", i]],
  [[0], [0], [0], [0], [0], [0], [0], [0], [0]]
# two pages
[[Gazette, a], [Gazette, b]], [[], []]
# a line in the middle
[[a, x, b], [c, x, d], [e, x, f]], [[], [], []]
""")


@pytest.mark.parametrize(("pages", "expected"), LINES)
def test_lines_that_pages_repeat_are_running_lines(pages, expected):
    assert [sorted(lines) for lines in pdf_pages.running_lines(pages)] == expected


INSERTED = {
    "<details><summary><h3>When open?</h3></summary>At six.</details>": "### When open?\n\nAt six.",
    "<details><summary>When?</summary><ul><li>At six</li></ul>Or later.</details>": "When?\n\n- At six\n\nOr later.",
    "<div>open?<div>At six</div>or<br>later</div>": "open?\n\nAt six\n\nor\nlater",
    "<table><tr><td>a<br>b<td><p>c</p><p>d</p></tr><tr><td>e<td>f</table>": "| a b | c d |\n| e | f |",
    "<dl><dt>Bread</dt><dd>4 crowns</dd><dt>Milk</dt><dd>2</dd></dl>": "Bread\n\n4 crowns\n\nMilk\n\n2",
    "<form><p>The text of a form that is long enough to be its content.</p></form><form><h2>Two</h2>"
    "<p>Another text of a form that is long enough for it.</p></form>": "its content.\n\n## Two\n\nAnother text",
    "<p>Press <button>Save</button> at <time>six</time>.</p>": "Press Save at six.",
    "<figure><img><figcaption>The tower</figcaption></figure>": "The tower",
    "<aside class='note'>A note without paragraph.</aside>": "A note without paragraph.",
    "<p>one</p>two<p>three</p>": "one\n\ntwo\n\nthree",
    "<h2>Head<br>line</h2>after": "## Head line\n\nafter",
    "<section><header><h2>Sec</h2></header>text</section>": "## Sec\n\ntext",
    "<pre><code>close\n  wait</code></pre>": "close\n  wait",
    "<pre>close\n  wait</pre>": "close\n  wait",
    "<p>10<sup>6</sup> and H<sub>2</sub>O for 25<sup>1</sup></p>": "10^6 and H2O for 25^1",
    "<p>25<a href='#fn3'><sup>3</sup></a> and 10<span style='vertical-align: 0.4em'>6</span></p>": "25[3] and 10^6",
    "<style>.up {color: red; vertical-align: super}</style><p>10<b class='a up'>-3</b> m</p>": "10^-3 m",
    "<p>3<sup>1</sup>/<sub>2</sub> of 1<sup>st</sup> <sup>14</sup>C, 25%<sup>2</sup></p>": "3 1/2 of 1st 14C, 25%^2",
    "<p>2<sup>3</sup><sub> </sub>4</p>": "2^3 4",
    "<p>Price <b>12<o:p></o:p></b> euro</p>": "Price 12 euro",
    "<p>2<sup>3</sup>4, log<sub>2</sub>8, x<sub>i</sub><sup>2</sup>y</p>": "2^(3)4, log_(2)8, x_i^2y",
    "<p><a href='#area-in-m2'>Area in m<sup>2</sup></a></p>": "Area in m^2",
    "<ol style='list-style: UPPER-roman'>before<li>a</li><li></li><li>b<p>c</p></li><div>d</div></ol>": "before\n\n"
    "I. a\n\nIII. b\n\n  c\n\nd",
    "<p>2<math><mn>2</mn><msup><mn>3</mn><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msup><mn>5</mn></math>7</p>": (
        "2 2 3^(n+1) 5 7"
    ),
    "<p><math><mmultiscripts><mi>C</mi><none/><none/><mprescripts/><mn>6</mn><mn>14</mn></mmultiscripts></math></p>": (
        "_6^14 C"
    ),
    "<p>5<mml:math xmlns:mml='m'><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac></mml:math></p>": "5 1/2",
    "<p>5<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> of it</p>": "5 1/2 of it",
    "<table><tr><th rowspan=2>M<th colspan=2>Mass<tr><th>dry<th>wet<tr><td rowspan=2>K<td>1<td>2"
    "<tr><td colspan=2>3</table>": "| M | Mass | Mass |\n| M | dry | wet |\n| K | 1 | 2 |\n| K | 3 | 3 |",
    "<p>Gre<b>ta</b> <i>Holm</i>&shy;berg</p>": "Greta Holm\u00adberg",
}


@pytest.mark.parametrize("around", ["", "main", "div"])
@pytest.mark.parametrize("inserted", INSERTED)
def test_no_words_of_a_page_are_lost_or_glued(inserted, around):
    """Alone on a page, and in prose of which trafilatura takes the content, with or without an
    element for that.
    """
    prose = [
        f"{text} It was in the {n}th year of the town. " * 5
        for n, text in enumerate((PROSE, LEFT_TEXT), 4)
    ]
    page = (
        f"<{around}><p>{prose[0]}</p>{inserted}<p>{prose[1]}</p></{around}>" if around else inserted
    )
    made = formats.html(f"<html><body>{page}</body></html>".encode())
    assert INSERTED[inserted] in made.text
    assert made.left_out < 0.01
    assert not made.omissions


RUN = "<w:p><w:r>{}<w:t>{}</w:t></w:r></w:p>"
EQUATION = (
    "<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
    "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>3</m:t></m:r></m:sup></m:sSup>"
)
MATH = "xmlns:m='http://schemas.openxmlformats.org/officeDocument/2006/math'"
LEFT_OUT = {
    "hidden.html": (
        b"<html><body><p>Tea <span hidden>x</span>.</p></body></html>",
        "hidden text (1 ",
    ),
    "styled.html": (
        b"<html><body><p>Tea <b style='color: red; display: none'>yy</b>.</p></body></html>",
        "hidden text (2",
    ),
    "deleted.html": (
        b"<html><body><p>Tea <del>x</del><s>yy</s>.</p></body></html>",
        "deleted text (3 ",
    ),
    "ruby.html": (
        b"<html><p>Te<ruby>a<rp>(</rp><rt>kan</rt><rp>)</rp></ruby> .</p></html>",
        "readings of characters (3",
    ),
    "hidden.docx": (
        docx(RUN.format("", "Tea ."), RUN.format("<w:rPr><w:vanish/></w:rPr>", "xyz")),
        "hidden text (3 ",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_reader_does_not_see_is_left_out_and_named(tmp_path, name):
    content, omission = LEFT_OUT[name]
    (tmp_path / name).write_bytes(content)
    made = formats.read(tmp_path / name)
    assert made.text.split() == ["Tea", "."]
    assert made.omissions.startswith(omission)


NAMES = (
    "xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006' xmlns:wps='urn:wps' "
    "xmlns:v='urn:schemas-microsoft-com:vml' xmlns:w14='http://schemas.microsoft.com/office/word/2010/wordml'"
)
BOX = "<w:txbxContent><w:p><w:r><w:t>In a box.</w:t></w:r></w:p></w:txbxContent>"
CHOICE = f"<mc:Choice Requires='wps'><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing></mc:Choice>"
FALLBACK = (
    f"<mc:Fallback><w:pict><v:shape><v:textbox>{BOX}</v:textbox></v:shape></w:pict></mc:Fallback>"
)
EQUATION_FIELD = (
    "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>EQ \\f(1,2)</w:instrText></w:r>"
    "<w:r><w:fldChar w:fldCharType='end'/></w:r>"
)
WORD = {  # what a paragraph of Word holds -> what is read, and what is named as left out
    "a text box": (f"<w:r><mc:AlternateContent>{CHOICE}{FALLBACK}</mc:AlternateContent></w:r>", "In a box.", ""),
    "a new text box": (f"<w:r><mc:AlternateContent>{CHOICE}</mc:AlternateContent></w:r>", "In a box.", ""),
    "an oval": (f"<w:r><w:pict><v:oval><v:textbox>{BOX}</v:textbox></v:oval></w:pict></w:r>", "In a box.", ""),
    "a ruby": (
        "<w:r><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>Tea</w:t></w:r></w:rubyBase></w:ruby></w:r>",
        "Tea", "",
    ),
    "a box that is ticked": (
        "<w:sdt><w:sdtPr><w14:checkbox><w14:checked w14:val='1'/></w14:checkbox></w:sdtPr><w:sdtContent><w:r><w:t>X Tea"
        "</w:t></w:r></w:sdtContent></w:sdt>", "X Tea", "",
    ),
    "breaks": ("<w:r><w:t>Tea 5</w:t><w:ptab/><w:t>6</w:t></w:r><w:r><w:cr/><w:t>7</w:t></w:r>", "Tea 5 6\n7", ""),
    "a field of an equation": (EQUATION_FIELD, "", "formulas of unknown form (1 "),
    "a symbol": ("<w:r><w:t>Tea</w:t><w:sym w:font='Odd' w:char='F0FF'/></w:r>", "Tea", "symbols"),
    "an element of tomorrow": ("<w:cloud><w:r><w:t>Milk</w:t></w:r></w:cloud>", "", "text in unknown places (4 "),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORD)
def test_what_word_shows_is_read_or_named(kind):
    inside, expected, omission = WORD[kind]
    made = formats.docx(docx(f"<w:p {NAMES}><w:r><w:t>See </w:t></w:r>{inside}</w:p>"))
    assert made.text.split() == ["See", *expected.split()]
    assert made.omissions.startswith(omission)
    assert bool(made.omissions) == bool(omission)


def numbered(level):
    """A list of one level, its definition by way of a style of lists."""
    return (
        f"<w:numbering xmlns:w='{MAIN}' {NAMES}><w:abstractNum w:abstractNumId='1'><w:numStyleLink w:val='L'/>"
        f"</w:abstractNum><w:abstractNum w:abstractNumId='2'><w:styleLink w:val='L'/><w:lvl w:ilvl='0'>"
        f"<w:start w:val='4'/>{level}</w:lvl></w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='1'/>"
        "</w:num></w:numbering>"
    )


NUMBERS = {
    "<w:numFmt w:val='lowerRoman'/><w:lvlText w:val='Art. %1:'/>": ("Art. iv: Tea", ""),
    "<w:numFmt w:val='none'/><w:lvlText w:val='Note'/>": ("Note Tea", ""),
    "<w:numFmt w:val='decimal'/><w:lvlText w:val=''/>": ("Tea", ""),
    "<w:numFmt w:val='bullet'/><w:lvlText w:val='%'/>": ("- Tea", ""),
    "<w:numFmt w:val='chineseCounting'/><w:lvlText w:val='%1.'/>": ("4. Tea", "list numbers of unknown form (1 "),
    "<mc:AlternateContent><mc:Choice Requires='w14'><w:numFmt w:val='custom' w:format='001'/></mc:Choice><mc:Fallback>"
    "<w:numFmt w:val='decimal'/></mc:Fallback></mc:AlternateContent>": ("4. Tea", "list numbers of unknown form (1 "),
}  # fmt: skip


@pytest.mark.parametrize("level", NUMBERS)
def test_forms_of_list_numbers(level):
    expected, omission = NUMBERS[level]
    parts = {"word/numbering.xml": numbered(level)}
    made = formats.docx(docx(paragraph("Tea", numbers=1), parts=parts))
    assert made.text == expected
    assert made.omissions.startswith(omission)
    assert bool(made.omissions) == bool(omission)


def test_parts_of_word_that_are_not_read_are_named():
    part = f"<w:{{0}} xmlns:w='{MAIN}'>{paragraph('Harbour')}</w:{{0}}>"
    parts = {
        "word/header1.xml": part.format("hdr"),
        "word/header2.xml": part.format("hdr"),
        "word/footer1.xml": part.format("ftr"),
        "word/charts/chart1.xml": "<c:chartSpace xmlns:c='urn:c'><c:v>12</c:v></c:chartSpace>",
    }
    made = formats.docx(docx(paragraph("Tea."), parts=parts))
    assert made.text == "Tea."
    counts = ["headers (14 characters)", "footers (7 characters)", "charts (2 characters)"]
    assert made.omissions.split(", ") == counts


def test_cells_merged_sideways_in_the_old_way_are_repeated():
    first = "<w:tc><w:tcPr><w:hMerge w:val='restart'/></w:tcPr><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>"
    following = "<w:tc><w:tcPr><w:hMerge/></w:tcPr><w:p/></w:tc>"
    mark = "<w:bookmarkStart w:id='1' w:name='row'/>"
    table = f"<w:tbl><w:tr>{first}{following}</w:tr>{mark}{row('b', 'c')}</w:tbl>"
    assert formats.docx(docx(table)).text == "| a | a |\n| b | c |"


def test_a_table_that_is_the_content_stays_a_table():
    rows = "".join(f"<tr><td>Pump {n}</td><td>{PROSE[:90]}</td></tr>" for n in range(9))
    made = formats.html(f"<html><body><table>{rows}</table><p>End.</p></body></html>".encode())
    assert made.text.startswith("| Pump 0 | The")


def test_running_lines_are_named():
    made = formats.pdf(SAMPLES["running-heads.pdf"].content)
    assert made.omissions == "4 running lines, the last 'Port Amsel Gazette Page 4'"


def test_equations_of_word_are_text():
    around = "<w:p><w:r><w:t>Half: </w:t></w:r>{}</w:p>"
    inside = around.format(f"<m:oMath {MATH}>{EQUATION}</m:oMath>")
    apart = around.format(f"<m:oMathPara {MATH}><m:oMath>{EQUATION}</m:oMath></m:oMathPara>")
    assert formats.docx(docx(inside, apart)).text == "Half: 1/2 x^3\n\nHalf: 1/2 x^3"


def test_filled_fields_and_text_boxes_of_a_pdf_are_read():
    import pypdf
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

    writer = pypdf.PdfWriter(io.BytesIO(SAMPLES["steps.pdf"].content))
    for keys in (
        {"Subtype": "Widget", "T": "serial", "V": "KX-4471"},
        {"Subtype": "Widget", "T": "empty"},
        {"Subtype": "Widget", "T": "sealed", "V": "Yes"},
        {"Subtype": "Widget", "T": "checks"},
        {"Subtype": "FreeText", "Contents": "Every 900 hours."},
        {"Subtype": "Text", "Contents": "Is this so?"},
        {"Subtype": "StrikeOut"},
    ):
        typed = {"Subtype": NameObject(f"/{keys.pop('Subtype')}")}
        typed |= {key: TextStringObject(value) for key, value in keys.items()}
        if keys.get("T") == "checks":
            typed["V"] = ArrayObject([TextStringObject("leak"), TextStringObject("noise")])
        field = DictionaryObject({NameObject(f"/{key}"): value for key, value in typed.items()})
        annotations = writer.pages[0].setdefault(NameObject("/Annots"), ArrayObject())
        annotations.append(writer._add_object(field))
    writer.add_attachment("parts.csv", b"1")
    content = io.BytesIO()
    writer.write(content)
    read = formats.pdf(content.getvalue())
    assert read.text.endswith(
        "serial: KX-4471\n\nsealed: Yes\n\nchecks: leak, noise\n\nEvery 900 hours."
    )
    kinds = ("1 attached files", "1 comments", "1 passages struck out, which are read")
    assert read.omissions == "; ".join(kinds)


@pytest.mark.parametrize(
    ("stream", "count"),
    [
        ("(10) Tj /F1 6 Tf 11 4 Td (6) Tj /F1 10 Tf 5 -4 Td (cells) Tj", 1),
        ("(H) Tj /F1 6 Tf 8 -2 Td (2) Tj /F1 10 Tf 5 2 Td (O, m) Tj 4 Ts /F1 6 Tf (2) Tj 0 Ts", 2),
        ("(10) Tj 4 Ts (6) Tj 0 Ts (cells) Tj", 1),
        ("(Title) Tj /F1 8 Tf 0 -12 Td (A line) Tj 0 -9 Td (below it) Tj 40 0 Td (more) Tj", 0),
    ],
)
def test_raised_text_of_a_pdf_is_counted(stream, count):
    content = pdf_of_streams([f"BT /F1 10 Tf 50 700 Td {stream} ET"])
    counted = f"{count} raised or lowered texts" if count else ""
    assert formats.pdf(content).omissions.startswith(counted)
    assert bool(count) == ("raised" in formats.pdf(content).omissions)


def pypdf_text(mode):
    import pypdf

    return lambda content: "\n".join(
        page.extract_text(extraction_mode=mode)
        for page in pypdf.PdfReader(io.BytesIO(content)).pages
    )


def trafilatura_text(output):
    import trafilatura

    return lambda content: (
        trafilatura.extract(content, include_comments=False, output_format=output) or ""
    )


def mammoth_text(way):
    import mammoth

    return lambda content: getattr(mammoth, way)(io.BytesIO(content)).value


OTHERS = {
    "pypdf": (".pdf", pypdf_text("plain")),
    "pypdf, layout": (".pdf", pypdf_text("layout")),
    "trafilatura, text": (".html", trafilatura_text("txt")),
    "trafilatura, Markdown": (".html", trafilatura_text("markdown")),
    "mammoth, raw text": (".docx", mammoth_text("extract_raw_text")),
    "mammoth, Markdown": (".docx", mammoth_text("convert_to_markdown")),
}


def agreement(sample, text):
    """How many of a sample's expectations hold of a text, white space aside, and how many there
    are.
    """
    flat = " ".join(text.split())
    expected = [" ".join(one.split()) in flat for one in sample.holds] + [
        one not in flat for one in sample.lacks
    ]
    return sum(expected), len(expected)


def test_the_page_compares_the_readers(root):
    """Its table has, for each way of reading, the expectations of these samples that hold."""
    rows = dict(
        re.findall(
            r"^\| ([\w, ]+) \| (\d+ of \d+) \|$", (root / "docs/study.md").read_text(), re.MULTILINE
        )
    )
    made = {}
    for name, (suffix, reader) in OTHERS.items():
        samples = [sample for file, sample in SAMPLES.items() if file.endswith(suffix)]
        counts = [agreement(sample, reader(sample.content)) for sample in samples]
        made[name] = "{} of {}".format(*map(sum, zip(*counts, strict=True)))
    assert rows == made
