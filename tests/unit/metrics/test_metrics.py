"""Metrics against official scores, by hand, and by the properties they must have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import registry
from ragauge.io.jsonl import read_jsonl
from ragauge.metrics import base as metrics
from tables import rows

TEXT = st.text("ab theAN.,'-\u2028é1\n", max_size=20)
ANSWERS = st.lists(TEXT, min_size=1, max_size=4)


def record(prediction, *answers, **more):
    return {"prediction": prediction, "answers": list(answers), **more}


def test_best_subspan_em_agrees_with_every_official_record(shared_data):
    path = shared_data / "metrics" / "nq-open-gold_at_0-predictions-scored.jsonl.gz"
    official = [line for _, line in read_jsonl(path)]
    scores = [
        metrics.score("best_subspan_em", record(r["model_answer"], *r["answers"])) for r in official
    ]
    assert len(official) == 2655
    assert scores == [r["metric_best_subspan_em"] for r in official]


@pytest.mark.parametrize(
    ("name", "prediction", "answers", "expected"),
    rows(r"""
best_subspan_em, It was the Röntgen-man., [röntgenman], 1.0
best_subspan_em, "nobody\nRöntgen", [Röntgen], 0.0
best_subspan_em, "\nRöntgen", [Röntgen], 0.0
# to the letter of the official evaluation
best_subspan_em, "Zoe\u0308", ["Zo\u00eb"], 0.0
contains_answer, "Zoe\u0308", ["Zo\u00eb"], 1.0
contains_answer, "The o\ufb03ce of Holm\u00adberg.", [office of holmberg], 1.0
contains_answer, "nobody\nR\u00f6ntgen", ["R\u00f6ntgen"], 0.0
# nothing is left of them
contains_answer, Anything., [The, "!!!", "\u3002"], 0.0
best_subspan_em, Anything., [The], 1.0
em, The  Beatles!, [beatles], 1.0
em, The Beatles band, [Beatles], 0.0
em, Democrat, [Democratic Party, Democrat], 1.0
f1, the big red dog, [red dog], 0.8
f1, dog dog, [dog], 0.6666666667
f1, cat, [dog, a cat], 1.0
f1, "", [dog], 0.0
f1, the, [a], 1.0
string_match_part, Seen in 1ROME., [Oslo, rome], 1.0
string_match_part, Rom, [Rome], 0.0
string_match_all, Rome and OSLO, [oslo, Lima, Rome, Paris], 0.5
# control characters are line ends
string_match_all, "a\tb", ["a\nb"], 1.0
substring_exact_match, "No.\nAnswer: The Paris!", [paris], 1.0
substring_exact_match, Pari, [Paris, Rome], 0.0
multiple_choice, "The correct answer is A, no: **The correct answer is (B)**", [B], 1.0
multiple_choice, The correct answer is (B, [B], 0.0
multiple_choice, The correct answer is B, [B], 1.0
multiple_choice, the correct answer is (B), [B], 0.0
multiple_choice, The correct answer is (E) or C), [C], 0.0
"""),
)
def test_by_hand(name, prediction, answers, expected):
    assert metrics.score(name, record(prediction, *answers)) == pytest.approx(expected)


def test_what_does_not_apply_has_no_score():
    assert metrics.score("multiple_choice", record("The correct answer is (A)", "Paris")) is None
    assert metrics.score("string_match_all", record("x")) is None
    assert metrics.score("string_match_part", record("x")) is None


@pytest.mark.parametrize(
    ("gold", "kept", "documents", "expected"),
    rows("""
[3], [3, 1], 20, 1.0
[3], [1], 20, 0.0
[3, 5], [5], 20, 0.5
[3], [], 20, 0.0
[], [1], 20, null
"""),
)
def test_kept_gold_recall(gold, kept, documents, expected):
    asked = record("", "x", gold=gold, kept=kept, documents=documents)
    assert metrics.score("kept_gold_recall", asked) == expected
    assert metrics.score("kept_gold_recall", {**asked, "documents": 0}) is None


def grounded(*evidence, gold=None, **more):
    """A record of pieces of evidence (text, first character; None: in no document) and a gold
    stretch.
    """
    pieces = [
        {
            "document": None if start is None else 0,
            "start": start,
            "stop": None if start is None else start + len(text),
            "text": text,
            "verbatim": start is not None,
        }
        for text, start in evidence
    ]
    stretches = [] if gold is None else [{"document": 0, "start": gold[0], "stop": gold[1]}]
    return {
        "status": "ok",
        "answers": ["5"],
        "evidence": pieces,
        "gold_stretches": stretches,
        **more,
    }


@pytest.mark.parametrize(
    ("name", "evidence", "more", "expected"),
    rows("""
evidence_verbatim, [[a b, 0], [c, 9]], {}, 1.0
evidence_verbatim, [[a b, 0], [made up, null]], {}, 0.5
evidence_verbatim, [], {}, null
answer_in_evidence, [["There were 5, or so.", 0]], {}, 1.0
answer_in_evidence, [[In 1950, 0]], {}, 0.0
answer_in_evidence, [[the New, 0], [York, 9]], {answers: [New York]}, 0.0
answer_in_evidence, [[new york!, 0]], {answers: [Rome, The New York]}, 1.0
answer_in_evidence, [], {}, 0.0
answer_in_evidence, [[x, 0]], {answers: [the]}, null
gold_section_recall, [[abc, 4]], {gold: [6, 20]}, 1.0
gold_section_recall, [[abc, 4]], {gold: [7, 20]}, 0.0
gold_section_recall, [[abc, 20]], {gold: [7, 20]}, 0.0
gold_section_recall, [[abc, null]], {gold: [0, 20]}, 0.0
gold_section_recall, [], {gold: [0, 20]}, 0.0
gold_section_recall, [[abc, 4]], {}, null
evidence_tokens, [], {tokens: {evidence: 7}}, 7.0
evidence_tokens, [], {tokens: {evidence: 0}}, 0.0
evidence_tokens, [], {tokens: {}}, null
"""),
)
def test_evidence_by_hand(name, evidence, more, expected):
    assert metrics.score(name, grounded(*evidence, **more)) == expected


@pytest.mark.parametrize("name", registry.names("metric"))
def test_a_failed_question_is_wrong(name):
    found = {**grounded(("x", 0), gold=(0, 1)), "tokens": {"evidence": 1}}
    found |= {"question": "q", "full_prompt": "x", "passages": ["x"], "judged": "correct"}
    texts = {"multiple_choice": ("The correct answer is (A)", "A")}.get(name, ("x", "x"))
    failed = {**found, **record(*texts, status="failed", gold=[0], kept=[0], documents=2)}
    assert metrics.score(name, failed) == 0.0
    assert metrics.score(name, {**failed, "status": "ok"}) == 1.0


@pytest.mark.parametrize(("evidence", "expected"), [(None, None), ([], 0.0)])
def test_a_failed_question_lacks_evidence_if_its_method_looks_for_any(evidence, expected):
    answered = {**grounded(gold=(0, 1)), "evidence": evidence}
    failed = {**answered, "status": "failed", "evidence": None, "prediction": None}
    [_, failed] = metrics.with_failed_empty([answered, failed])
    assert (failed["prediction"], metrics.score("gold_section_recall", failed)) == ("", expected)


@given(TEXT, ANSWERS, TEXT)
def test_an_alias_never_hurts_and_order_never_matters(prediction, answers, alias):
    for name in ("em", "f1", "best_subspan_em"):
        alone = metrics.score(name, record(prediction, *answers))
        assert alone is not None
        assert alone <= metrics.score(name, record(prediction, *answers, alias))
        assert alone == metrics.score(name, record(prediction, *reversed(answers)))
