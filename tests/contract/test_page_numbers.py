"""Pages that carry numbers of committed runs say what the tables say."""

from pathlib import Path

import pytest

import page_numbers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", page_numbers.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_numbers_of_a_page_are_those_of_the_tables(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page_numbers.generated(text) == text, "run `python docs/page_numbers.py`"
