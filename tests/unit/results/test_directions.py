"""Verdicts on orderings, by the intervals of one row or of two."""

import importlib
import sys
from pathlib import Path

import pytest

from ragauge.errors import UserError
from ragauge.results.stats import SHARE, paired_test

sys.path.append(str(Path(__file__).parents[3] / "reports"))
directions = importlib.import_module("directions").directions

TABLE = """method,quantity,measured,low,high,p,n
gain,difference,0.10,0.02,0.18,0.01,100
loss,difference,-0.10,-0.18,-0.02,0.02,100
perhaps,difference,0.10,0.02,0.18,0.06,100
faster,ratio,1.2,0.9,1.5,,15
twice,ratio,6,5,8,,15
once,ratio,3,2,4,,15
a,accuracy,0.50,0.44,0.58,,100
b,accuracy,0.30,0.22,0.33,,100
none,accuracy,,,,,0
weak,accuracy,0.09,0.05,0.14,,100
weaker,accuracy,0.01,0.00,0.03,,100
fewer,accuracy,0.20,0.10,0.30,,20
"""
LEVEL = "quantity: difference, row: {method: gain}, level: accuracy"
SCORES = "model,question,a,b\n" + "".join(
    f"{model},{model} {number},{a},{b}\n"
    for model in ("small", "medium", "large")
    for number, (a, b) in enumerate(
        zip([*"111011", ""][: 7 if model == "large" else 2], "0001110", strict=False)
    )
)


def direction(folder, claim):
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run/table.csv").write_text(TABLE)
    (folder / "run/scores.csv").write_text(SCORES)
    claim = (
        claim if "readers" in claim else f"readers: {{small: {{table: run/table.csv}}}}, {claim}"
    )
    (folder / "claims.yaml").write_text(f"claims: {{one: {{states: s, source: t, {claim}}}}}")
    [row] = directions(folder / "claims.yaml", folder)
    return row


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("quantity: difference, row: {method: gain}", "agrees"),
        ("quantity: difference, row: {method: loss}", "disagrees"),
        ("quantity: difference, row: {method: loss}, is_lower_better: true", "agrees"),
        ("quantity: ratio, row: {method: faster}, above: 1", "inconclusive"),
        ("quantity: difference, row: {method: perhaps}", "inconclusive"),
        ("quantity: accuracy, better: {method: b}, worse: {method: a}", "disagrees"),
        ("quantity: accuracy, better: {method: a}, worse: {method: weaker}", "agrees"),
        ("quantity: accuracy, better: {method: weak}, worse: {method: weaker}", "at the floor"),
        (f"{LEVEL}, better: {{method: a}}, worse: {{method: b}}", "agrees"),
        (f"{LEVEL}, better: {{method: weak}}, worse: {{method: weaker}}", "at the floor"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_a_low_p_and_a_reader(tmp_path, claim, verdict):
    assert direction(tmp_path, claim)["verdict"] == verdict


def test_the_intervals_of_two_rows_add_as_squares(tmp_path):
    row = direction(tmp_path, "quantity: accuracy, better: {method: a}, worse: {method: b}")
    # 0.2 - sqrt(0.06^2 + 0.03^2), 0.2 + sqrt(0.08^2 + 0.08^2)
    assert [row[name] for name in ("value", "low", "high", "n")] == [
        "0.2",
        "0.132918",
        "0.313137",
        100,
    ]
    assert row["rows"] == "a − b"


def test_two_rows_of_ratios_are_divided(tmp_path):
    row = direction(
        tmp_path, "quantity: ratio, better: {method: twice}, worse: {method: once}, above: 1"
    )
    # 2 * exp(-sqrt(ln(6/5)^2 + ln(4/3)^2)), 2 * exp(sqrt(ln(8/6)^2 + ln(3/2)^2))
    assert [row[name] for name in ("value", "low", "high", "verdict")] == [
        "2",
        "1.4227",
        "3.28807",
        "agrees",
    ]
    assert row["rows"] == "twice / once"


def test_scores_are_compared_question_by_question(tmp_path):
    scores = "{table: run/scores.csv, keys: {model: large}, note: half}"
    claim = f"readers: {{large: {scores}}}, note: whole, quantity: em"
    row = direction(tmp_path, f"{claim}, better: {{variant: a}}, worse: {{variant: b}}")
    # the seventh question was asked of one
    test = paired_test([1, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1], limits=SHARE)
    assert [row[name] for name in ("value", "low", "n")] == [
        f"{test['difference']:.6g}",
        f"{test['low']:.6g}",
        6,
    ]
    assert (row["reader"], row["interval"], row["note"]) == ("large", "paired", "half")
    assert row["rows"] == "large, a − large, b"
    both = "readers: {all: {table: run/scores.csv, keys: {model: small|medium}}}, quantity: em"
    assert direction(tmp_path, f"{both}, better: {{variant: a}}, worse: {{variant: b}}")["n"] == 4
    with pytest.raises(UserError, match="has no question of both"):
        direction(tmp_path, f"{claim}, better: {{variant: a}}, worse: {{variant: c}}")


@pytest.mark.parametrize(("questions", "verdict"), [(4, "inconclusive"), (8, "agrees")])
def test_a_few_pairs_of_one_difference_do_not_decide(tmp_path, monkeypatch, questions, verdict):
    lines = "".join(f"small,{number},1,0\n" for number in range(questions))
    monkeypatch.setitem(globals(), "SCORES", f"model,question,a,b\n{lines}")
    readers = "readers: {small: {table: run/scores.csv}}, quantity: em"
    row = direction(tmp_path, f"{readers}, better: {{variant: a}}, worse: {{variant: b}}")
    assert row["verdict"] == verdict
    assert (float(str(row["low"])) > 0) == (verdict == "agrees")


def test_a_claim_that_names_no_model_where_there_are_two_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SCORES", "model,question,a,b\nsmall,q,1,0\nlarge,q,0,1\n")
    claim = "readers: {all: {table: run/scores.csv}}, quantity: em, better: {variant: a}, worse: {variant: b}"
    with pytest.raises(UserError, match="has several scores of one question"):
        direction(tmp_path, claim)


def test_each_reader_has_a_row(tmp_path):
    readers = "small: {table: run/table.csv, keys: {method: gain}}, large: {table: run/table.csv, keys: {method: loss}}"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/table.csv").write_text(TABLE)
    row = "{method: another, quantity: difference}"  # a reader's own keys count
    claim = f"states: s, source: t, readers: {{{readers}}}, quantity: difference, row: {row}"
    (tmp_path / "claims.yaml").write_text(f"claims: {{one: {{{claim}}}}}")
    rows = directions(tmp_path / "claims.yaml", tmp_path)
    assert [(row["reader"], row["verdict"]) for row in rows] == [
        ("small", "agrees"),
        ("large", "disagrees"),
    ]
    assert [(row["p"], row["p_holm"]) for row in rows] == [("0.01", "0.02"), ("0.02", "0.02")]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("quantity: accuracy, row: {method: c}", "has 0 rows with"),
        ("quantity: accuracy, row: {method: none}", "has no value with an interval"),
        ("quantity: accuracy, better: {method: a}", "needs either row, or better and worse"),
        (
            "quantity: accuracy, better: {method: a}, worse: {method: fewer}",
            "with other questions: n is 100 and 20",
        ),
        ("quantity: accuracy, rwo: {method: a}", "claims.one.rwo: unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_the_claim(tmp_path, claim, message):
    with pytest.raises(UserError, match=r"claims\.yaml: claims\.one") as raised:
        direction(tmp_path, claim)
    assert message in str(raised.value)
