"""Pages that carry numbers of committed runs say what the tables say."""

from pathlib import Path

import pytest

import page_numbers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", page_numbers.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_numbers_of_a_page_are_those_of_the_tables(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page_numbers.generated(text) == text, "run `python docs/page_numbers.py`"


def test_a_number_is_written_in_the_form_that_its_comment_states(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("variant,measured,low,high\na,0.25,0.2,0.31\nb,0.5,0.4,0.6\n")
    names = f"a: {{table: {table}, variant: a}}\nb: {{table: {table}, variant: b}}\nmore: {{reversed: a}}\n"
    names += "times: {ratio: [b, a]}\nsaved: {saving: [a, b]}\n"
    text = "9<!--a:points-->% [−1.5<!--more.low:+.2f-->] 1<!--times:.1f--> 1<!--saved:points-->%"
    found = page_numbers.generated(f"9<!--a:points-->\n<!-- numbers:\n{names}-->\n{text}")
    shown = "25<!--a:points-->% [−0.31<!--more.low:+.2f-->] 2.0<!--times:.1f--> 50<!--saved:points-->%"
    assert found == f"9<!--a:points-->\n<!-- numbers:\n{names}-->\n{shown}"


def test_claims_have_a_row_each_and_a_column_for_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"source": "CFIC, Table 3", "low": "-1", "high": "2", "n": "40", "note": "a note", "about": "answers"}
    same |= {"p": "", "p_holm": ""}
    tested = {"p": "0.003", "p_holm": "0.03"}
    rows = [
        {"claim": "a beats b", "reader": "small", "verdict": "inconclusive", "value": "0.05", **same, **tested},
        {"claim": "a beats b", "reader": "large", "verdict": "agrees", "value": "0.2", **same, "about": "times"},
        {"claim": "c beats d", "reader": "large", "verdict": "disagrees", "value": "-0.2", **same},
        {"claim": "of another", "reader": "large", "verdict": "agrees", "value": "1", **same, "source": "PipeRAG"},
    ]
    monkeypatch.setattr(page_numbers, "_table", lambda name: rows)
    written = page_numbers.generated("<!-- claims: CFIC -->\nold\n<!-- /claims -->").splitlines()
    assert written[2] == "| claim | source | small | large | note |"
    small, large = "**inconclusive** 0.05 [−1, 2], p = 0.003 †, n = 40", "**agrees** 0.2 [−1, 2], n = 40 trials"
    assert written[4] == f"| a beats b | CFIC, Table 3 | {small} | {large} | a note |"
    assert written[5].startswith("| c beats d | CFIC, Table 3 |  | **disagrees** −0.2 ")
    assert len(written) == 8
