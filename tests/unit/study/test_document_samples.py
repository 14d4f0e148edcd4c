"""Documents of kinds that are often read badly: what this reader, and others, take from them."""

import io
import re

import pytest

from document_samples import LEFT_TEXT, PROSE, SAMPLES
from ragauge.study import formats, pdf_pages
from study_files import docx

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
        {"Subtype": "FreeText", "Contents": "Every 900 hours."},
    ):
        typed = {"Subtype": NameObject(f"/{keys.pop('Subtype')}")}
        typed |= {key: TextStringObject(value) for key, value in keys.items()}
        field = DictionaryObject({NameObject(f"/{key}"): value for key, value in typed.items()})
        annotations = writer.pages[0].setdefault(NameObject("/Annots"), ArrayObject())
        annotations.append(writer._add_object(field))
    content = io.BytesIO()
    writer.write(content)
    text = formats.pdf(content.getvalue()).text
    assert text.endswith("serial: KX-4471\n\nsealed: Yes\n\nEvery 900 hours.")


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
