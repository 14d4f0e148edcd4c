"""Pages that carry numbers of committed runs say what the tables say."""

import csv
import re
from pathlib import Path

import pytest

import page_numbers
import qwen_checks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", page_numbers.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_numbers_of_a_page_are_those_of_the_tables(page):
    text = page.read_text(encoding="utf-8")
    assert page_numbers.generated(text) == text, "run `python docs/page_numbers.py`"
    labels = [label for label, _, _ in page_numbers.DEFINITION.findall(text)]
    assert len(labels) == text.count("; format="), "a definition cannot be read"
    assert sorted(labels) == sorted(set(re.findall(r"\]\[([\w.-]+)\]", text)))


def test_the_checks_of_the_qwen_run_are_those_of_its_records():
    with (qwen_checks.RUN / "checks.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == qwen_checks.table(), (
            "run `python reports/qwen_checks.py`"
        )


def test_the_coverage_of_intervals_is_that_of_the_simulation():
    with (ROOT / "reports/coverage.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    bounded = [row for row in rows if int(row["n"]) >= 20 and row["kind"] != "unbounded"]
    assert min(float(row["coverage"]) for row in bounded) >= 0.94
    page = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")
    columns = [(kind, "coverage") for kind in ("proportion", "f1")]
    paired = ("paired difference", "f1 difference")
    columns += [(kind, column) for column in ("coverage", "percentile") for kind in paired]
    for n in {row["n"] for row in rows}:
        cells = []
        for kind, column in columns:
            shares = [100 * float(r[column]) for r in rows if (r["kind"], r["n"]) == (kind, n)]
            cells.append(f"{min(shares):.1f} to {max(shares):.1f}%")
        assert f"| {' | '.join([n, *cells])} |" in page
