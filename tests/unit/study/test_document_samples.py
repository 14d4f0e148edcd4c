"""Documents of kinds that are often read badly: what this reader, and others, take from them."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from document_samples import SAMPLES, Sample
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
    "numbers that do not count pages": ([["a", "Sum: 4"], ["b", "Sum: 9"], ["c", "Sum: 7"]], [set()] * 3),
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


def pypdf_text(mode: str) -> Callable[[bytes], str]:
    import pypdf

    return lambda content: "\n".join(
        page.extract_text(extraction_mode=mode) for page in pypdf.PdfReader(io.BytesIO(content)).pages
    )


def trafilatura_text(output: str) -> Callable[[bytes], str]:
    import trafilatura

    return lambda content: trafilatura.extract(content, include_comments=False, output_format=output) or ""


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
    """How many of a sample's expectations hold of a text, white space aside, and how many there are."""
    flat = " ".join(text.split())
    expected = [" ".join(one.split()) in flat for one in sample.holds] + [one not in flat for one in sample.lacks]
    return sum(expected), len(expected)


def test_the_page_compares_the_readers(root: Path) -> None:
    """Its table has, for each way of reading, the expectations of these samples that hold."""
    rows = dict(re.findall(r"^\| ([\w, ]+) \| (\d+ of \d+) \|$", (root / "docs/study.md").read_text(), re.MULTILINE))
    made = {}
    for name, (suffix, reader) in OTHERS.items():
        samples = [sample for file, sample in SAMPLES.items() if file.endswith(suffix)]
        counts = [agreement(sample, reader(sample.content)) for sample in samples]
        made[name] = "{} of {}".format(*map(sum, zip(*counts, strict=True)))
    assert rows == made
