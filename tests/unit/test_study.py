"""A study of one's own: passages, questions, and the experiment that is written."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ragauge import datasets
from ragauge.errors import UserError
from ragauge.experiment import schema
from ragauge.study import passages, questions, writing
from ragauge.study.passages import Passage
from ragauge.study.questions import Question


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 5, 5], [(0, 2), (1, 3)]),  # one sentence shared
        ([9, 9], [(0, 1), (1, 2)]),  # a sentence that is no overlap
        ([30, 2], [(0, 1), (1, 2)]),  # one longer than a passage
        ([], []),
    ],
)
def test_sentences_are_grouped_within_tokens(counts: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(passages.groups(counts, tokens=10, overlap=5)) == expected


@pytest.mark.parametrize("overlap", [0, 3, 9])
def test_every_sentence_is_in_a_passage_and_passages_advance(overlap: int) -> None:
    counts = [1, 4, 12, 3, 3, 3, 7, 2, 8, 1]
    found = list(passages.groups(counts, tokens=10, overlap=overlap))
    assert {i for first, last in found for i in range(first, last)} == set(range(len(counts)))
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(found))
    assert all(sum(counts[a:b]) <= 10 or b == a + 1 for a, b in found)


def test_questions_of_csv_and_json_lines_are_the_same(tmp_path: Path) -> None:
    table, lines = tmp_path / "q.csv", tmp_path / "q.jsonl"
    table.write_text('question,answers,gold\n"Who, then?",Ada|Ada Byron,engine\n', encoding="utf-8")
    lines.write_text(
        '{"question": "Who, then?", "answers": ["Ada", "Ada Byron"], "gold": "engine"}\n', encoding="utf-8"
    )
    assert questions.read_questions(table) == questions.read_questions(lines)
    assert questions.read_questions(table) == [Question("Who, then?", ("Ada", "Ada Byron"), "engine")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [("Who?,\n", "q.csv:2: question without answers"), ("Who?,a\nWho?,b\n", "q.csv:3: .*twice"), ("", "no questions")],
)
def test_a_mistake_in_questions_names_its_place(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "q.csv"
    path.write_text(f"question,answers\n{rows}", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        questions.read_questions(path)


def test_what_is_written_is_read_as_a_data_set(tmp_path: Path) -> None:
    corpus = [Passage("a", "Tea is grown in Assam."), Passage("b", "Coffee grows in Kenya."), Passage("c", "Assam.")]
    asked = [Question("Where is tea grown?", ("Assam",), "a")]
    found = list(writing.retrieved(asked, corpus, 3))
    writing.write_records(tmp_path / "q.jsonl", writing.records(asked, corpus, found))
    [example] = datasets.load("study", data=tmp_path / "q.jsonl")
    assert example.documents[0].title == "a"
    assert example.gold == (0,)  # passage c holds the answer too, in a document that is not gold


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ("hf:org/Model-1B", "Model-1B"),
        ("smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("path:/a/my model/", "my-model"),
    ],
)
def test_a_study_is_an_experiment_that_names_its_model(tmp_path: Path, source: str, label: str) -> None:
    data = tmp_path / "q.jsonl"
    data.touch()
    settings = writing.configuration(writing.label("our manuals"), source, data)
    config = schema.parse(settings, "config.yaml")
    assert (config.run, list(config.models)) == ("our-manuals", [label])


def test_documents_of_a_folder_are_named_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "start.md").write_text("# Start\n\nHere.", encoding="utf-8")
    (tmp_path / "more.jsonl").write_text('{"title": "More", "text": "There."}\n', encoding="utf-8")
    assert list(passages.read_documents(tmp_path)) == [("guide/start", "# Start\n\nHere."), ("More", "There.")]
    with pytest.raises(UserError, match="is not a folder"):
        next(passages.read_documents(tmp_path / "absent"))
