"""Metrics against official scores, by hand, and by the properties they must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragauge import metrics
from ragauge.datasets import read_jsonl
from ragauge.errors import UserError
from ragauge.metrics import _text, f1

TEXT = st.text("ab theAN.,'-\u2028é1\n", max_size=20)
ANSWERS = st.lists(TEXT, min_size=1, max_size=4)


def record(prediction: str, *answers: str, **more: Any) -> dict[str, Any]:
    return {"prediction": prediction, "answers": list(answers), **more}


def test_best_subspan_em_agrees_with_every_official_record(shared_data: Path) -> None:
    path = shared_data / "metrics" / "nq-open-gold_at_0-predictions-scored.jsonl.gz"
    official = [line for _, line in read_jsonl(path)]
    scores = [metrics.score("best_subspan_em", record(r["model_answer"], *r["answers"])) for r in official]
    assert len(official) == 2655
    assert scores == [r["metric_best_subspan_em"] for r in official]


@pytest.mark.parametrize(
    ("name", "prediction", "answers", "expected"),
    [
        ("best_subspan_em", "It was the Röntgen-man.", ["röntgenman"], 1.0),
        ("best_subspan_em", "nobody\nRöntgen", ["Röntgen"], 0.0),
        ("best_subspan_em", "\nRöntgen", ["Röntgen"], 0.0),
        ("em", "The  Beatles!", ["beatles"], 1.0),
        ("em", "The Beatles band", ["Beatles"], 0.0),
        ("em", "Democrat", ["Democratic Party", "Democrat"], 1.0),
        ("f1", "the big red dog", ["red dog"], 0.8),
        ("f1", "dog dog", ["dog"], 2 / 3),
        ("f1", "cat", ["dog", "a cat"], 1.0),
        ("f1", "", ["dog"], 0.0),
        ("f1", "the", ["a"], 1.0),
    ],
)
def test_by_hand(name: str, prediction: str, answers: list[str], expected: float) -> None:
    assert metrics.score(name, record(prediction, *answers)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gold", "kept", "documents", "expected"),
    [([3], [3, 1], 20, 1.0), ([3], [1], 20, 0.0), ([3, 5], [5], 20, 0.5), ([3], [], 20, 0.0), ([], [1], 20, None)],
)
def test_kept_gold_recall(gold: list[int], kept: list[int], documents: int, expected: float | None) -> None:
    asked = record("", "x", gold=gold, kept=kept, documents=documents)
    assert metrics.score("kept_gold_recall", asked) == expected
    assert metrics.score("kept_gold_recall", {**asked, "documents": 0}) is None


@pytest.mark.parametrize("name", metrics.names())
def test_a_failed_question_has_no_score(name: str) -> None:
    failed = record("x", "x", status="failed", gold=[0], kept=[0], documents=2)
    assert metrics.score(name, failed) is None
    assert metrics.score(name, {**failed, "status": "ok"}) == 1.0


def test_unknown_metric() -> None:
    with pytest.raises(UserError, match="unknown metric 'emm'; did you mean 'em'"):
        metrics.score("emm", record("x", "x"))


@given(TEXT)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = _text.normalise(text)
    assert "  " not in once
    assert once == once.strip().lower()
    assert _text.normalise(once) == once


@given(TEXT, ANSWERS)
def test_exact_match_is_the_strictest(prediction: str, answers: list[str]) -> None:
    assume("\n" not in prediction)
    exact, overlap, subspan = (metrics.score(n, record(prediction, *answers)) for n in ("em", "f1", "best_subspan_em"))
    assert exact is not None
    assert overlap is not None
    assert subspan is not None
    assert 0 <= exact <= overlap <= 1
    assert exact <= subspan


@given(TEXT, ANSWERS, TEXT)
def test_an_alias_never_hurts_and_order_never_matters(prediction: str, answers: list[str], alias: str) -> None:
    for name in ("em", "f1", "best_subspan_em"):
        alone = metrics.score(name, record(prediction, *answers))
        assert alone is not None
        assert alone <= metrics.score(name, record(prediction, *answers, alias))
        assert alone == metrics.score(name, record(prediction, *reversed(answers)))


@given(TEXT, TEXT)
def test_f1_is_symmetric(a: str, b: str) -> None:
    assert f1._f1(a, b) == pytest.approx(f1._f1(b, a))
