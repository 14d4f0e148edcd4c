"""Documents of kinds that are often read badly: what this reader, and others, take from them."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from document_samples import LEFT_TEXT, PROSE, SAMPLES, Sample
from ragauge.study import formats, pdf_pages

for library in ("trafilatura", "mammoth", "pypdf"):
    pytest.importorskip(library, reason="takes the packages of the extra study")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_document_is_read_as_it_looks(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    (tmp_path / name).write_bytes(sample.content)
    made = formats.read(tmp_path / name)
    for text in sample.holds:
        assert text in made.text
    assert not [text for text in sample.lacks if text in made.text]
    assert made.title == sample.title
    assert sample.warning in made.warning
    assert bool(sample.warning) == bool(made.warning)


HEADS = [[f"{'Amsel' if n % 2 == 0 else 'Gazette'} {n}", "abcdef"[n - 2]] for n in range(2, 8)]
LINES = {
    "left and right pages": (HEADS, [{0}] * 6),
    "numbers that do not count pages": (
        [["a", "Sum: 4"], ["b", "Sum: 9"], ["c", "Sum: 7"]],
        [set()] * 3,
    ),
    "numbers on some pages": (
        [["a"], ["b"], ["c"], ["d", "4"], ["e", "5"], ["f", "6"], ["g"], ["h"], ["i"]],
        [set()] * 3 + [{1}] * 3 + [set()] * 3,
    ),
    "pages of pages": ([["a", "Page 1 of 2"], ["b", "Page 2 of 2"]], [{1}, {1}]),
    "one page": ([["a", "12", "- Seite 1 -"]], [{2}]),
    "a line in the middle": ([["a", "x", "b"], ["c", "x", "d"], ["e", "x", "f"]], [set()] * 3),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_that_pages_repeat_are_running_lines(case: str) -> None:
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
    "<p>Gre<b>ta</b> <i>Holm</i>&shy;berg</p>": "Greta Holm\u00adberg",
}


@pytest.mark.parametrize("around", ["", "main", "div"])
@pytest.mark.parametrize("inserted", INSERTED)
def test_no_words_of_a_page_are_lost_or_glued(inserted: str, around: str) -> None:
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


def pypdf_text(mode: str) -> Callable[[bytes], str]:
    import pypdf

    return lambda content: "\n".join(
        page.extract_text(extraction_mode=mode)
        for page in pypdf.PdfReader(io.BytesIO(content)).pages
    )


def trafilatura_text(output: str) -> Callable[[bytes], str]:
    import trafilatura

    return lambda content: (
        trafilatura.extract(content, include_comments=False, output_format=output) or ""
    )


def mammoth_text(way: str) -> Callable[[bytes], str]:
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


def agreement(sample: Sample, text: str) -> tuple[int, int]:
    """How many of a sample's expectations hold of a text, white space aside, and how many there
    are.
    """
    flat = " ".join(text.split())
    expected = [" ".join(one.split()) in flat for one in sample.holds] + [
        one not in flat for one in sample.lacks
    ]
    return sum(expected), len(expected)


def test_the_page_compares_the_readers(root: Path) -> None:
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
