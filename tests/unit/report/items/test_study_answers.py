"""Answers without labels: agreement with the full prompt, groundedness, a judge, and what a judge's
number is worth.
"""

import json
import math

import pytest

from json_lines import read_lines, write_lines
from ragauge.config import loading
from ragauge.datasets.base import loader
from ragauge.datasets.base.examples import read_examples, write_examples
from ragauge.metrics import base as metrics
from ragauge.report.items import study_answers
from ragauge.results.measures import quality, scored
from ragauge.results.runs import Runs
from ragauge.study import writing
from synthetic_run import MODEL, specification, write_meta, write_variant
from tables import rows

COUNT = 20


@pytest.mark.parametrize(
    ("metric", "record", "expected"),
    rows("""
agreement, {prediction: the red tea, full_prompt: Red tea.}, 1.0
agreement, {prediction: red tea, full_prompt: green tea}, 0.5
agreement, {prediction: red tea}, null
groundedness, {prediction: It is red., question: "What is it?", passages: [A red leaf.]}, 1.0
groundedness, {prediction: red blue, question: q, passages: [A red leaf.]}, 0.5
groundedness, {prediction: red, question: q, passages: []}, null
groundedness, {prediction: What is it, question: "What is it?", passages: [x]}, null
judged_correct, {judged: correct}, 1.0
judged_correct, {judged: incorrect}, 0.0
judged_correct, {}, null
"""),
)
def test_metrics_that_need_no_label(metric, record, expected):
    assert metrics.score(metric, record) == expected


def test_a_study_may_have_unlabelled_questions(tmp_path):
    documents = [{"title": "a", "text": "Tea.", "is_gold": False}]
    line = {"id": "1", "question": "Who?", "answers": [], "documents": documents}
    (tmp_path / "q.jsonl").write_text(json.dumps(line) + "\n")
    [example] = loader.load("study", data=tmp_path / "q.jsonl")
    assert example.answers == ()
    write_examples(tmp_path / "written.jsonl", [example])
    assert read_examples(tmp_path / "written.jsonl") == [example]


def run(folder, labels=True, judged=None):
    """A study of two variants: naive is right on every second question, the retriever's first on
    the first quarter.
    """
    data = folder / "q.jsonl"
    data.touch()
    settings = writing.configuration("s", {"source": MODEL}, data)
    lines = []
    for name in ("naive", "top_k1"):
        right = [i % 2 == 0 if name == "naive" else i < COUNT // 4 for i in range(COUNT)]
        params = {"top_k": 1} if name != "naive" else {}
        more = {} if labels else {"answers": []}
        method = name.removesuffix("_k1")
        path = write_variant(
            folder, name, method, right, params=params, dataset="questions", documents=3, **more
        )
        write_meta(path, specification(method, params, "study", MODEL))
        records = read_lines(path)
        if judged:
            out = folder / "judgements" / "questions" / MODEL / f"{name}.jsonl"
            out.parent.mkdir(parents=True, exist_ok=True)
            said = [
                {"key": r["key"], "judge": "j", "label": judged(i)} for i, r in enumerate(records)
            ]
            write_lines(out, said)
        documents = [[{"title": "", "text": r["prediction"] or "-"}] * 3 for r in records]
        asked = {"question": "?", "answers": [], "gold": []}
        lines = [
            {"key": r["key"], "documents": d, **asked}
            for r, d in zip(records, documents, strict=True)
        ]
    (folder / "data").mkdir()
    write_lines(folder / "data" / "questions.jsonl", lines)
    return Runs(folder, loading.parse(settings, "s.yaml"))


def cells(runs):
    table = study_answers.table(runs)
    study_answers.draw(table)
    return {(line["variant"], line["quantity"]): line for line in table.to_dict("records")}


def test_the_full_prompt_agrees_with_itself(tmp_path):
    runs = run(tmp_path)
    rows = cells(runs)
    assert rows["naive", "agreement"]["measured"] == 1.0
    assert rows["top_k1", "agreement"]["measured"] < 1.0
    assert rows["naive", "contains_answer"]["measured"] == 0.5
    assert rows["top_k1", "groundedness"]["measured"] == 1.0  # its passages say what it answered
    assert rows["naive", "groundedness"]["measured"] is not None


def test_without_labels_quality_is_agreement_and_nothing_says_what_a_judge_is_worth(
    tmp_path,
):
    runs = run(tmp_path, labels=False, judged=lambda i: "correct")
    assert runs.metrics("questions") == ("agreement", "groundedness")
    naive, bm25 = runs.run
    assert quality(naive).value == 1.0
    assert set(scored(bm25)) == set(bm25.records)


@pytest.mark.parametrize(
    ("judged", "correct", "note"),
    [
        (None, math.nan, "not judged"),
        (lambda i: "correct" if i else None, 0.95, "judged by j"),
        # nine replies have no label
        (lambda i: None if i < 10 else "correct", 10 / 11, "judged by j"),
    ],
)
def test_a_failed_question_is_wrong_only_where_a_metric_applies(tmp_path, judged, correct, note):
    runs = run(tmp_path, labels=False, judged=judged)
    path = tmp_path / "answers" / "questions" / MODEL / "top_k1.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text(
        json.dumps({**json.loads(first), "status": "failed", "prediction": ""})
        + "\n"
        + "".join(others)
    )
    [variant] = [v for v in runs.run if v.method != "naive"]
    rows = cells(runs)
    assert rows["top_k1", "contains_answer"]["note"] == "no question has a known answer"
    assert rows["top_k1", "judged_correct"]["measured"] == pytest.approx(correct, nan_ok=True)
    assert note in rows["top_k1", "judged_correct"]["note"]
    assert scored(variant, "agreement")["q0"] == 0.0
    assert (
        quality(variant, "groundedness").note
        == "1 of 20 questions failed, 0 of them counted as wrong"
    )


@pytest.mark.parametrize(
    ("judged", "agreement", "kappa"),
    [
        # naive's labels, and half of bm25's
        (lambda i: "correct" if i % 2 == 0 else "incorrect", 0.75, 0.5),
        (lambda i: "correct", 0.375, 0.0),  # tells nothing
    ],
)
def test_a_judge_is_worth_what_it_agrees_with_labels(tmp_path, judged, agreement, kappa):
    rows = cells(run(tmp_path, judged=judged))
    line = rows["all variants", "judge_agreement"]
    assert line["measured"] == pytest.approx(agreement, abs=0.051)
    assert rows["all variants", "judge_kappa"]["measured"] == pytest.approx(kappa, abs=0.051)
    assert "judged by j" in rows["naive", "judged_correct"]["note"]
