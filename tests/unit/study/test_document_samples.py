"""Documents of kinds that are often read badly: what this reader, and others, take from them."""

import io
import re

import pytest

from document_samples import LEFT_TEXT, PROSE, SAMPLES
from ragauge.study import formats, pdf_pages
from study_files import MAIN, docx, paragraph, row

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


LINES = {
    "one head, and page numbers apart from it": (
        [[f"Gazette      {n}", "abcdef"[n - 2]] for n in range(2, 8)],
        [{0}] * 6,
    ),
    "left and right pages": (
        [["Amsel" if n % 2 else "Gazette", "abcdef"[n], f"Page {n + 1} of 6"] for n in range(6)],
        [{0, 2}] * 6,
    ),
    "titles of pages": ([[f"Machine {n}", "Oil", "abc"[n]] for n in range(3)], [set()] * 3),
    "numbers that do not count pages": (
        [["a", "Sum: 4"], ["b", "Sum: 9"], ["c", "Sum: 7"]],
        [set()] * 3,
    ),
    "numbers alone": ([["a", "4"], ["b", "5"], ["c", "- 6 -"]], [{1}] * 3),
    "numbers of another kind": ([["a", "4"], ["b", "9"], ["c", "7"]], [set()] * 3),
    "heads of chapters": (
        [[f"Chapter {n // 3}      {n}", "abcdefghi"[n]] for n in range(9)],
        [{0}] * 9,
    ),
    "two pages": ([["Gazette", "a"], ["Gazette", "b"]], [set()] * 2),
    "a line in the middle": ([["a", "x", "b"], ["c", "x", "d"], ["e", "x", "f"]], [set()] * 3),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_that_pages_repeat_are_running_lines(case):
    pages, expected = LINES[case]
    assert pdf_pages.running_lines(pages) == expected


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


def numbered(level, link="", number="", again=""):
    """A list of one level, its definition by way of a style of lists."""
    start = "<w:start w:val='4'/>"
    return (
        f"<w:numbering xmlns:w='{MAIN}' {NAMES}><w:abstractNum w:abstractNumId='1'>{link or start}"
        f"</w:abstractNum><w:abstractNum w:abstractNumId='2'><w:styleLink w:val='L'/><w:lvl w:ilvl='0'>{start}{level}"
        f"</w:lvl></w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='1'/>{number}</w:num></w:numbering>"
    )


LINK = "<w:numStyleLink w:val='L'/>"
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
    parts = {"word/numbering.xml": numbered(level, LINK)}
    made = formats.docx(docx(paragraph("Tea", numbers=1), parts=parts))
    assert made.text == expected
    assert made.omissions.startswith(omission)
    assert bool(made.omissions) == bool(omission)


LISTS = """<w:abstractNum w:abstractNumId='7'>
<w:lvl w:ilvl='0'><w:start w:val='1'/><w:numFmt w:val='upperRoman'/><w:lvlText w:val='%1.'/></w:lvl>
<w:lvl w:ilvl='1'><w:start w:val='3'/><w:numFmt w:val='lowerLetter'/><w:lvlText w:val='%1.%2)'/></w:lvl>
<w:lvl w:ilvl='2'><w:start w:val='1'/><w:numFmt w:val='decimalZero'/><w:lvlRestart w:val='1'/><w:isLgl/>
<w:lvlText w:val='%1.%2.%3'/></w:lvl></w:abstractNum>
<w:num w:numId='1'><w:abstractNumId w:val='7'/></w:num>
<w:num w:numId='2'><w:abstractNumId w:val='7'/><w:lvlOverride w:ilvl='0'><w:startOverride w:val='5'/></w:lvlOverride>
</w:num>"""
STYLES = """<w:style w:type='character' w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>
<w:style w:type='character' w:styleId='Gone'><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type='character' w:styleId='Deeper'><w:basedOn w:val='Gone'/></w:style>
<w:style w:type='paragraph' w:styleId='Hidden'><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type='paragraph' w:styleId='S'><w:pPr><w:numPr><w:ilvl w:val='1'/><w:numId w:val='1'/></w:numPr></w:pPr>
</w:style><w:style w:type='paragraph' w:styleId='T'><w:basedOn w:val='S'/></w:style>"""
PARTS = {
    "word/numbering.xml": f"<w:numbering xmlns:w='{MAIN}'>{LISTS}</w:numbering>",
    "word/styles.xml": f"<w:styles xmlns:w='{MAIN}'>{STYLES}</w:styles>",
}


def test_lists_of_word_go_on_begin_anew_and_are_numbered_by_styles():
    expected = [
        "I. 1 0",
        "  I.c) 1 1",
        "    1.3.1 1 2",
        "  I.d) 1 1",
        "    1.4.2 1 2",
        "V. 2 0",
        "VI. 1 0",
        "  VI.c) 1 1",
        "    6.3.1 1 2",
    ]
    places = [line.split()[1:] for line in expected]
    texts = [paragraph(f"{n} {level}", numbers=n, level=level) for n, level in places]
    made = formats.docx(docx(*texts, paragraph("Tea", "T"), parts=PARTS))
    assert made.text.split("\n\n") == [*expected, "  VI.d) Tea"]
    assert not made.omissions


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("<w:vertAlign w:val='superscript'/>", "10^6"),
        ("<w:rStyle w:val='Up'/>", "10^6"),
        ("<w:position w:val='6'/>", "10^6"),
        ("<w:position w:val='-6'/>", "10_6"),
        ("<w:vanish/>", "10"),
        ("<w:vanish w:val='1'/>", "10"),
        ("<w:strike/>", "10"),
        ("<w:dstrike w:val='true'/>", "10"),
        ("<w:rStyle w:val='Gone'/>", "10"),
        ("<w:rStyle w:val='Deeper'/>", "10"),
        ("<w:b/>", "106"),
        ("<w:vanish w:val='0'/>", "106"),
        ("<w:rStyle w:val='Gone'/><w:vanish w:val='false'/>", "106"),
        ("<w:strike w:val='0'/>", "106"),
    ],
)
def test_runs_of_word_look_as_their_formats_and_styles_say(mark, text, is_strict):
    runs = f"<w:r><w:t>10</w:t></w:r><w:r><w:rPr>{mark}</w:rPr><w:t>6</w:t></w:r>"
    made = formats.docx(docx(f"<w:p>{runs}</w:p>", parts=PARTS, is_strict=is_strict))
    assert made.text == text
    assert bool(made.omissions) == (text == "10")


def test_changes_are_accepted_and_hidden_paragraphs_have_no_number():
    inside = (
        "<w:fldSimple w:instr='REF x'><w:r><w:t>tea</w:t></w:r></w:fldSimple><w:del><w:r><w:delText>rye</w:delText>"
        "</w:r></w:del><w:ins><w:r><w:t>cup</w:t></w:r></w:ins>"
    )
    hidden = paragraph("xyz", "Hidden", numbers=1)
    blocks = (f"<w:p>{inside}</w:p>", hidden, paragraph("first", numbers=1))
    made = formats.docx(docx(*blocks, parts=PARTS))
    assert made.text == "teacup\n\nI. first"
    assert made.omissions == "hidden text (3 characters), deleted text (3 characters)"


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


EQUATIONS = [  # of Word, where brackets stand for its runs; of a page; in one line
    (
        "<m:sSubSup><m:e>[x]</m:e><m:sub>[i]</m:sub><m:sup>[n+1]</m:sup></m:sSubSup>",
        "<msubsup><mi>x</mi><mi>i</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msubsup>",
        "x_i^(n+1)",
    ),
    (
        "<m:f><m:num>[1]</m:num><m:den>[2]</m:den></m:f><m:sSup><m:e>[x]</m:e><m:sup>[3]</m:sup></m:sSup>",
        "<mfrac><mn>1</mn><mn>2</mn></mfrac><msup><mi>x</mi><mn>3</mn></msup>",
        "1/2 x^3",
    ),
    (
        "<m:f><m:fPr><m:type m:val='noBar'/></m:fPr><m:num>[n]</m:num><m:den>[k]</m:den></m:f>",
        "<mfrac linethickness='0'><mi>n</mi><mi>k</mi></mfrac>",
        "(n over k)",
    ),
    (
        "<m:rad><m:radPr><m:degHide m:val='1'/></m:radPr><m:deg/><m:e>[x+1]</m:e></m:rad>",
        "<msqrt><mi>x</mi><mo>+</mo><mn>1</mn></msqrt>",
        "\u221a(x+1)",
    ),
    (
        "<m:rad><m:deg>[3]</m:deg><m:e>[x]</m:e></m:rad>",
        "<mroot><mi>x</mi><mn>3</mn></mroot>",
        "x^(1/3)",
    ),
    (
        "<m:d><m:e><m:sSub><m:e>[a]</m:e><m:sub>[2]</m:sub></m:sSub></m:e></m:d>",
        "<mrow><mo>(</mo><msub><mi>a</mi><mn>2</mn></msub><mo>)</mo></mrow>",
        "(a_2)",
    ),
]


@pytest.mark.parametrize("wrapped", ["{}", f"<m:oMathPara {MATH}>{{}}</m:oMathPara>"])
@pytest.mark.parametrize(("omml", "mathml", "text"), EQUATIONS)
def test_equations_are_text_in_one_line(omml, mathml, text, wrapped):
    page = f"<html><body><p>It is <math>{mathml}</math></p></body></html>"
    assert formats.html(page.encode()).text == f"It is {text}"
    runs = re.sub(r"\[(.*?)\]", r"<m:r><m:t>\1</m:t></m:r>", omml)
    equation = wrapped.format(f"<m:oMath {MATH}>{runs}</m:oMath>")
    before = "<w:r><w:t xml:space='preserve'>It is </w:t></w:r>"
    assert formats.docx(docx(f"<w:p>{before}{equation}</w:p>")).text == f"It is {text}"


MERGED = """<w:tbl><w:tr><w:tc><w:tcPr><w:vMerge w:val='restart'/></w:tcPr>{a}</w:tc>
<w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>{b}</w:tc></w:tr>
<w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc><w:tc>{c}</w:tc><w:tc>{d}</w:tc></w:tr>
<w:tr><w:trPr><w:gridBefore w:val='1'/></w:trPr><w:tc>{a}</w:tc><w:tc>{b}</w:tc></w:tr></w:tbl>"""


def test_merged_and_missing_cells_of_word_are_read_in_their_columns():
    table = MERGED.format(**{name: paragraph(name) for name in "abcd"})
    assert formats.docx(docx(table)).text == "| a | b | b |\n| a | c | d |\n|  | a | b |"


def test_running_lines_are_named():
    made = formats.pdf(SAMPLES["running-heads.pdf"].content)
    assert made.omissions == "4 running lines, the last 'Port Amsel Gazette Page 4'"


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
    ):
        typed = {"Subtype": NameObject(f"/{keys.pop('Subtype')}")}
        typed |= {key: TextStringObject(value) for key, value in keys.items()}
        if keys.get("T") == "checks":
            typed["V"] = ArrayObject([TextStringObject("leak"), TextStringObject("noise")])
        field = DictionaryObject({NameObject(f"/{key}"): value for key, value in typed.items()})
        annotations = writer.pages[0].setdefault(NameObject("/Annots"), ArrayObject())
        annotations.append(writer._add_object(field))
    content = io.BytesIO()
    writer.write(content)
    text = formats.pdf(content.getvalue()).text
    assert text.endswith(
        "serial: KX-4471\n\nsealed: Yes\n\nchecks: leak, noise\n\nEvery 900 hours."
    )
