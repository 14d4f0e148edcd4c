"""Scores and comparisons of files, and what is said of files that do not fit."""

import json
import re

import pytest

from json_lines import write_lines
from ragauge.errors import UserError
from ragauge.io.record_writer import RecordWriter
from ragauge.io.records import Record
from ragauge.results.scoring import compare_files, score_file
from tables import cases


def write(path, *lines):
    return write_lines(path, lines)


def records_file(path, predictions, question="who"):
    """A finished file: key -> prediction, None where the question failed; "me" is right."""
    common = {
        "question": question,
        "answers": ["me"],
        "gold": [0],
        "documents": 2,
        "kept": [0],
        "prompt_sha256": "0",
    }
    with RecordWriter(path, {}, list(predictions)) as writer:
        for key, text in predictions.items():
            status = "ok" if text is not None else "failed"
            writer.append(
                Record.model_validate(
                    {"key": key, "status": status, "prediction": text or "", **common}
                )
            )
        writer.finish({})
    return path


def test_the_official_file(shared_data):
    path = shared_data / "metrics" / "nq-open-gold_at_0-predictions-scored.jsonl.gz"
    result = score_file(path, "best_subspan_em", prediction_key="model_answer")
    assert (result["n"], result["records"], result["failed"]) == (2655, 2655, 0)
    assert result["low"] < result["mean"] < result["high"]
    assert result["high"] - result["low"] == pytest.approx(2 * 1.96 * (0.25 / 2655) ** 0.5, rel=0.3)


def test_failed_records_are_wrong_and_nothing_to_score_is_null(tmp_path):
    path = records_file(tmp_path / "x.jsonl", {"a": "me", "b": None})
    result = score_file(path, "em")
    assert (result["mean"], result["n"], result["records"], result["failed"]) == (0.5, 2, 2, 1)
    result = score_file(path, "answer_in_evidence")  # of a method that looks for none
    assert (result["mean"], result["low"], result["n"]) == (None, None, 0)
    assert json.loads(json.dumps(result)) == result


EMPTIED = [
    ("Retinol is Vitamin C, I think", "A"),
    ("no idea", "The The"),
    ("Berlin", "!!!"),
    ("Berlin", "Paris"),
    ("A", "A"),
]


@pytest.mark.parametrize(
    ("dataset", "metric", "mean", "said"),
    [
        (None, "best_subspan_em", 0.2, "4 records have .*; officially 0.800$"),
        ("study", "best_subspan_em", 0.2, "4 records have .*; officially 0.800$"),
        (None, "em", 0.2, "officially 0.200$"),
        ("nq_open", "best_subspan_em", 0.8, "to the official formula, which counts here"),
    ],
)
def test_answers_that_normalisation_empties_are_told(dataset, metric, mean, said, tmp_path):
    lines = [
        {"id": str(at), "output": text, "golds": [gold]} for at, (text, gold) in enumerate(EMPTIED)
    ]
    path = write(tmp_path / "x.jsonl", *lines)
    if dataset:
        write(tmp_path / "x.meta.json", {"specification": {"dataset": dataset}})
    result = score_file(path, metric, prediction_key="output", answers_key="golds")
    assert result["mean"] == pytest.approx(mean)
    assert re.search(said, result["remark"])
    assert "remark" not in score_file(
        write(path, lines[3]), metric, prediction_key="output", answers_key="golds"
    )


@pytest.mark.parametrize(
    ("line", "metric", "said"),
    cases("""
{answers: [x]}, em -> no field 'prediction', which em requires; it has answers
{prediction: x}, f1 -> no field 'answers', which f1 requires
{prediction: null, answers: [x]}, em -> field 'prediction' must be text
{prediction: x, answers: [1]}, em -> field 'answers' must be a list of texts
{gold: [0], kept: 3}, kept_gold_recall -> field 'kept' must be a list of integers
{prediction: x, answers: [x]}, kept_gold_recall -> no field 'gold'
"""),
)
def test_lines_that_do_not_fit(tmp_path, line, metric, said):
    fine = {"prediction": "x", "answers": ["x"], "gold": [0], "kept": [0]}
    path = write(tmp_path / "x.jsonl", fine, line)
    with pytest.raises(UserError) as error:
        score_file(path, metric)
    assert str(error.value).startswith(f"{path}:2: ")
    assert said in str(error.value)


def test_files_that_cannot_be_scored(tmp_path):
    with pytest.raises(UserError, match="holds no records"):
        score_file(write(tmp_path / "x.jsonl"), "em")
    with pytest.raises(UserError, match="unknown metric 'emm'; did you mean 'em'"):
        score_file(write(tmp_path / "x.jsonl", {"prediction": "x", "answers": ["x"]}), "emm")


def test_comparison_on_shared_questions(tmp_path):
    a = records_file(tmp_path / "a.jsonl", {"1": "me", "2": "me", "3": "you", "4": None, "5": "me"})
    b = records_file(
        tmp_path / "b.jsonl", {"3": "you", "2": "you", "1": "me", "4": "me", "6": "me"}
    )
    result = compare_files(a, b)
    assert (result["questions"], result["only_a"], result["only_b"]) == (4, 1, 1)
    assert (result["failed_a"], result["failed_b"]) == (1, 0)
    em = result["metrics"]["em"]
    assert (em["a"], em["b"], em["difference"], em["n"]) == (0.5, 0.5, 0.0, 4)
    assert em["low"] <= em["difference"] <= em["high"]
    assert set(result["metrics"]) == {
        "best_subspan_em",
        "contains_answer",
        "em",
        "f1",
        "kept_gold_recall",
        "string_match_all",
        "string_match_part",
        "substring_exact_match",
    }
    assert set(compare_files(a, b, ["em"])["metrics"]) == {"em"}


def test_files_that_cannot_be_compared(tmp_path):
    a = records_file(tmp_path / "a.jsonl", {"1": "me"})
    with pytest.raises(UserError, match="no question in common"):
        compare_files(a, records_file(tmp_path / "b.jsonl", {"2": "me"}))
    with pytest.raises(UserError, match="'1' is a different question in each"):
        compare_files(a, records_file(tmp_path / "c.jsonl", {"1": "me"}, question="when"))
    (tmp_path / "d.jsonl").write_bytes(a.read_bytes() * 2)
    with pytest.raises(UserError, match="duplicate key '1'"):
        compare_files(a, tmp_path / "d.jsonl")
    with pytest.raises(UserError, match="unknown metric 'bleu'"):
        compare_files(a, a, ["bleu"])
