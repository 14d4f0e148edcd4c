"""A study of one's own: passages, questions, and the experiment that is written."""

from contextlib import redirect_stderr
from io import StringIO

import pytest
import yaml

from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.datasets.base import loader
from ragauge.io.jsonl import json_lines
from ragauge.study import documents, passages, retrieval, writing
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion, read_questions
from ragauge.study.retrieval import Retrieval, gold_passages
from ragauge.study.settings import EXAMPLE
from study_files import study_arguments
from tables import rows


@pytest.mark.parametrize(
    ("counts", "expected"),
    rows("""
# one sentence shared
[5, 5, 5], [[0, 2], [1, 3]]
# a sentence that is no overlap
[9, 9], [[0, 1], [1, 2]]
# one longer than a passage
[30, 2], [[0, 1], [1, 2]]
[], []
"""),
)
def test_sentences_are_grouped_within_tokens(counts, expected):
    assert list(map(list, passages.groups(counts, tokens=10, overlap=5))) == expected


def test_what_is_written_is_read_as_a_data_set(tmp_path):
    corpus = [
        Passage("a", "Tea is grown in Assam."),
        Passage("b", "Coffee grows in Kenya."),
        Passage("c", "Assam."),
    ]
    asked = [StudyQuestion("Where is tea grown?", ("Assam",), "a")]
    gold = list(gold_passages(asked, corpus, {title: title for title in "abc"}))
    found = retrieval.Searcher(Retrieval(), corpus, tmp_path).rankings(["Where is tea grown?"], 3)[
        "bm25"
    ]
    (tmp_path / "q.jsonl").write_bytes(json_lines(writing.records(asked, corpus, found, gold)))
    [example] = loader.load("study", data=tmp_path / "q.jsonl")
    assert example.documents[0].title == "a"
    assert example.gold == (0,)  # passage c holds the answer too, in a document that is not gold


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ("hf:org/Model-1B", "Model-1B"),
        ("smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("path:/a/my model/", "my-model"),
        ("openai:org/m", "m"),
    ],
)
def test_a_study_is_an_experiment_that_names_its_model(tmp_path, source, label):
    data = tmp_path / "q.jsonl"
    data.touch()
    settings = writing.configuration(
        writing.label("our manuals"), {"source": source}, data, methods=["naive"]
    )
    config = loading.parse(settings, "config.yaml")
    assert (config.run, list(config.models)) == ("our-manuals", [label])
    served = config.models[label].served
    assert (served is None) != source.startswith("openai:")
    assert served is None or served.own_cache


def study(out, *options, answer="Assam"):
    """Write a study of the documents beside it; returns what is printed as errors.

    The warning of so few questions is left out.
    """
    command = [*study_arguments(out.parent / "sources", answer), "--out", str(out), *options]
    errors = StringIO()
    with redirect_stderr(errors), pytest.raises(SystemExit) as ended:
        raise SystemExit(main(command))
    lines = [line for line in errors.getvalue().splitlines() if " below 4" not in line]
    assert ended.value.code in ((2,) if any("error: " in line for line in lines) else (None, 0))
    return "\n".join(lines)


@pytest.mark.parametrize("taken", ["questions.jsonl", "config.yaml", "notes.txt"])
def test_a_folder_with_files_of_somebody_is_refused(tmp_path, taken):
    out = tmp_path / "work"
    out.mkdir()
    (out / taken).write_text("mine", encoding="utf-8")
    assert "holds files that ragauge did not make" in study(out)
    assert [(path.name, path.read_text(encoding="utf-8")) for path in out.iterdir()] == [
        (taken, "mine")
    ]


def test_a_study_without_known_answers_says_so(tmp_path):
    assert "warning: no question has a known answer" in study(tmp_path / "unknown", answer="")


def test_a_study_is_not_written_among_its_documents(tmp_path):
    assert study(tmp_path / "work") == ""
    error = study(tmp_path / "work", "--out", str(tmp_path / "sources" / "texts" / "out"))
    assert "sources/texts, whose files are the documents; choose another" in error
    assert not (tmp_path / "sources" / "texts" / "out").exists()


@pytest.mark.parametrize("changed", ["questions.jsonl", "config.yaml", "retrieval.json"])
def test_a_study_is_written_again_but_not_over_changes(tmp_path, changed):
    out = tmp_path / "work"
    assert study(out) == ""
    assert study(out, "--passage-tokens", "64") == ""
    before = (out / changed).read_bytes()
    (out / changed).write_bytes(before + b"\n")
    error = study(out)
    assert f"{out / changed}: was changed after it was written" in error
    assert "snakemake --snakefile" in error
    assert (out / changed).read_bytes() == before + b"\n"
    (out / changed).write_bytes(before)
    assert study(out) == ""


def test_a_model_beside_the_documents_is_named_by_its_full_path(tmp_path, monkeypatch):
    out = tmp_path / "work"
    assert study(out) == ""
    monkeypatch.chdir(tmp_path)
    for name in ("sources/model", "path:sources/model"):
        assert study(out, "--model", name) == ""
        models = yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8"))["models"]
        assert models == {"model": {"source": f"path:{tmp_path / 'sources' / 'model'}"}}


def test_a_study_of_other_documents_is_not_overwritten(tmp_path):
    out = tmp_path / "work"
    assert study(out) == ""
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    others = tmp_path / "others"
    others.mkdir()
    (others / "salt.md").write_text("Salt comes from Hallein.")
    error = study(out, "--documents", str(others))
    assert f"has a study of {tmp_path / 'sources' / 'texts'}; choose another --out" in error
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_gold_files_that_are_not_there_are_named_before_any_is_read(tmp_path, monkeypatch):
    lines = "Where?,Assam,tea.md\nWhat?,Assam,old.pdf\nWho?,Assam,sub/lost.docx\n"
    monkeypatch.setattr(documents, "read", lambda _: pytest.fail("was read"))
    arguments = study_arguments(tmp_path / "others")
    (tmp_path / "others" / "q.csv").write_text(f"question,answers,gold\n{lines}")
    errors = StringIO()
    with redirect_stderr(errors):
        assert main([*arguments, "--out", str(tmp_path / "w")]) == 2
    assert "'old.pdf'" in errors.getvalue()
    assert "'lost.docx'" in errors.getvalue()
    assert "'tea.md'" not in errors.getvalue()


def test_a_folder_that_cannot_be_written_is_noticed_before_documents_are_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(documents, "read", lambda _: pytest.fail("was read"))
    (tmp_path / "file").write_text("")
    error = study(tmp_path / "work", "--out", str(tmp_path / "file" / "work"))
    assert str(tmp_path / "file" / "work") in error


def test_a_model_that_may_be_behind_a_server_is_spelled_so(tmp_path):
    error = study(tmp_path / "work", "--model", "gpt-4o-mini")
    assert "openai:gpt-4o-mini" in error


def test_each_question_of_the_example_is_answered_by_its_document():
    asked = read_questions(EXAMPLE / "questions.csv")
    read = documents.read(EXAMPLE / "documents")
    texts = {document.title: " ".join(document.text.split()) for document in read.documents}
    assert len(asked) == 60
    assert {question.gold for question in asked} == set(texts)
    for question in asked:
        assert any(answer in texts[question.gold] for answer in question.answers), question
