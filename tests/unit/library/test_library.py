"""The library runs the code of `ragauge run`: same records, same files, same messages."""

import gc
import json
import sys
from functools import partial
from unittest import mock

import pytest

import ragauge
from ragauge.cli._main import main
from ragauge.datasets.base.dataset import SEARCH_RESULTS, Document
from ragauge.engines.protocol import ANSWERING
from ragauge.library import methods
from ragauge.measure import answering, concurrency
from ragauge.methods.base import making
from ragauge.results.scoring import compare_files
from ragauge.testing import write_checkpoint, write_questions

DOCUMENTS = ["Rome has 2 old bridges.", ("Oslo", "It has <3> new bridges."), "Lima is a city."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("library")
    write_checkpoint(made / "tiny")
    write_questions(made / "few.jsonl", count=4)
    return made


@pytest.fixture(scope="module")
def model(folder):
    return ragauge.load_model(folder / "tiny", device="cpu", threads=1)


@pytest.fixture(scope="module")
def questions(folder):
    return ragauge.load_dataset("nq_open", data=folder / "few.jsonl")


@pytest.fixture(scope="module")
def results(model, questions):
    variants = {
        "naive": "naive",
        "bm25_k1": ragauge.method("bm25", top_k=1),
        "sp": ragauge.method("superposition"),
    }
    return ragauge.evaluate(variants, questions, model, max_new_tokens=6)


@pytest.fixture
def asked(monkeypatch):
    """The keys of the questions that are asked, as they are."""
    keys = []
    ask = concurrency.ask

    def counted(engine, method, example, *rest, **options):
        keys.append(example.key)
        return ask(engine, method, example, *rest, **options)

    monkeypatch.setattr(concurrency, "ask", counted)
    return keys


# --- answers ---


def test_an_answer_has_its_documents_and_costs(model):
    answer = ragauge.method("bm25", top_k=1).answer(
        model, "Anything new?", DOCUMENTS, max_new_tokens=5
    )
    assert (answer.kept, answer.documents[0].title) == ((1,), "Oslo")
    assert len(answer.saliency) == 3
    assert answer.tokens["generated"] <= 5
    assert 0 < answer.cycles < answer.macs
    assert answer.online_s
    assert answer.first_token_s
    assert answer.offline_s  # the preamble's and the best document's
    assert {call.stage for call in answer.trace} >= {"preamble", "rank"}


def prompted(monkeypatch, model, documents, **options):
    """The example and the specification that a question on these documents becomes."""
    ask = mock.Mock(wraps=methods.ask)
    monkeypatch.setattr(methods, "ask", ask)
    ragauge.method("naive").answer(model, "Which?", documents, max_new_tokens=1, **options)
    return ask.call_args.args[2:4]


@pytest.mark.parametrize(
    ("documents", "titles"),
    [
        ({"Rome": "x", "Oslo": "y"}, ["Rome", "Oslo"]),
        (iter([("Rome", "x"), (None, "y")]), ["Rome", ""]),
        (["x", "y"], ["1", "2"]),
        (["x", ("<b>", "y")], ["1", "<b>"]),
        ((Document("Rome", "x"), "y"), ["Rome", "2"]),
    ],
)
def test_documents_are_what_was_given(documents, titles, model, monkeypatch):
    example, _ = prompted(monkeypatch, model, documents)
    assert [document.title for document in example.documents] == titles
    assert [document.text for document in example.documents] == ["x", "y"]


@pytest.mark.parametrize(
    ("options", "instruction"),
    [({}, SEARCH_RESULTS), ({"instruction": ""}, ""), ({"instruction": "Go."}, "Go.")],
)
def test_an_instruction_is_what_was_given(
    options,
    instruction,
    model,
    monkeypatch,
):
    _, specification = prompted(monkeypatch, model, ["x"], **options)
    assert specification.instruction == instruction


# --- evaluations ---


def test_it_writes_what_ragauge_run_writes(folder, model, questions, asked, tmp_path):
    out = tmp_path / "answers/nq_open/tiny/naive.jsonl"
    data = ["--dataset", "nq_open", "--data", str(folder / "few.jsonl"), "--out", str(out)]
    options = ["--model", str(folder / "tiny"), "--max-new-tokens", "6", "--threads", "1"]
    assert main(["run", "--method", "naive", *data, *options]) == 0
    written = out.read_bytes()
    assert len(asked) == 4
    results = ragauge.evaluate("naive", questions, model, out=tmp_path, max_new_tokens=6)
    assert len(asked) == 4  # nothing was asked again
    assert out.read_bytes() == written
    assert len(results.to_pandas()) == 4
    meta = json.loads(out.with_suffix(".meta.json").read_text())
    assert meta["specification"]["model"] == str(folder / "tiny")


def test_a_failed_question_is_recorded_and_asked_again_on_demand(
    model,
    questions,
    asked,
    tmp_path,
    monkeypatch,
):
    given = {"limit": 2, "out": tmp_path, "max_new_tokens": 2}
    with monkeypatch.context() as patched:
        fails = mock.Mock(side_effect=ragauge.UserError("too <long>"))
        patched.setattr(answering, "timed", fails)
        failed = ragauge.evaluate("naive", questions, model, **given)
        with pytest.raises(ragauge.UserError, match="naive on tiny: too <long>"):
            ragauge.method("naive").answer(model, questions[0])
    assert list(failed.to_pandas()["reason"]) == ["too <long>"] * 2
    assert list(failed.to_pandas()["best_subspan_em"]) == [0.0] * 2
    assert list(failed.summary()["failed"]) == [2]
    asked.clear()
    again = ragauge.evaluate("naive", questions, model, retry_failed=True, **given)
    assert len(asked) == 2
    assert list(again.to_pandas()["status"]) == ["ok"] * 2


# --- results ---


def test_comparisons_are_those_of_ragauge_compare(results):
    table = results.compare()
    assert [*zip(table["a"], table["b"], strict=True)] == [
        ("bm25_k1", "naive"),
        ("bm25_k1", "sp"),
        ("naive", "sp"),
    ]
    folder = results.folder / "answers/nq_open/tiny"
    files = compare_files(folder / "bm25_k1.jsonl", folder / "sp.jsonl", ["kept_gold_recall"])
    mine = results.compare(base="sp", metric="kept_gold_recall").iloc[0]
    theirs = files["metrics"]["kept_gold_recall"]
    for key in ("difference", "p", "n"):
        assert mine[key] == theirs[key]


def test_a_summary_has_a_row_a_variant(results):
    table = results.summary().set_index("variant")
    assert list(table["questions"]) == [4, 4, 4]
    assert table.loc["sp", "speedup"] > table.loc["naive", "speedup"] == 1.0
    assert ragauge.Results.load(results.folder).summary().equals(results.summary())
    assert "<table" in results._repr_html_()
    assert "3 variants, 12 answers" in repr(results)


def test_the_frontier_is_a_figure_of_all_variants(results):
    figure = results.plot_frontier()
    assert [axes.get_xlabel().partition(" (")[0] for axes in figure.axes] == ["online latency"]


# --- mistakes ---


def test_mistakes_are_told_in_one_line(model, questions, results, tmp_path):
    answer = partial(ragauge.method("naive").answer, model)
    evaluate = partial(ragauge.evaluate, dataset=questions, model=model)
    load_model = partial(ragauge.load_model, "smollm2-135m-instruct")
    absent = tmp_path / "none"
    wrong = [
        (lambda: ragauge.load_model("smollm"), "load_model: unknown model 'smollm'"),
        (lambda: ragauge.load_model(absent), f"load_model: '{absent}': "),
        (lambda: load_model(device="gpu"), "unknown device 'gpu'"),
        (lambda: load_model(dtype="int4"), "load_model: dtype: "),
        (lambda: ragauge.load_dataset("nq_opn"), "load_dataset: .*'nq_opn'; .*'nq_open'"),
        (lambda: ragauge.load_dataset("nq_open", data=absent), f"{absent}: "),
        (lambda: answer("Which?"), "answer: question 'Which?' "),
        (lambda: answer("Which?", "one text"), "answer: question 'Which?' "),
        (lambda: answer("Which?", [" "]), "answer: document"),
        (lambda: answer("Which?", ("A", "x")), "answer: documents: a pair"),
        (lambda: answer("Which?", [("A", "x", "y")]), "answer: documents: number 1 "),
        (lambda: answer("Which?", ["x"], max_new_tokens=0), "answer: max_new_tokens .*1, not 0"),
        (lambda: evaluate("naive", max_new_tokens=0), "evaluate: max_new_tokens .*1, not 0"),
        (lambda: answer(questions[0], ["x"]), f"answer: question {questions[0].key!r} "),
        (lambda: evaluate("naive", limit=0), "evaluate: limit .*1, not 0"),
        (lambda: evaluate(["superpositon"]), "unknown method 'superpositon'; .*'superposition'"),
        (lambda: evaluate([]), "evaluate: methods: "),
        (lambda: evaluate(["naive", "naive"]), "evaluate: methods: 'naive' twice"),
        (lambda: evaluate({"a b": "naive"}), "evaluate: methods: 'a b' "),
        (lambda: ragauge.Results.load(tmp_path), f"{tmp_path}: "),
        (lambda: results.compare(base="spp"), "compare: .*'spp'; .*'sp'"),
        (lambda: results.compare(metric="f2"), "compare: .*'f2'"),
    ]
    for call, facts in wrong:
        with pytest.raises(ragauge.UserError, match=rf"^{facts}[^\n]*$".replace("?", "\\?")):
            call()


def test_a_method_that_the_engine_cannot_run_is_refused_before_anything_is_asked(
    model,
    questions,
    asked,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr("ragauge.engines.backend.capabilities", lambda engine, where: ANSWERING)
    with pytest.raises(ragauge.UserError, match="requires an engine with key-value caches"):
        ragauge.evaluate(["naive", "superposition"], questions, model, out=tmp_path)
    assert asked == []


def test_a_package_of_an_extra_is_named(model, questions, monkeypatch):
    monkeypatch.setitem(sys.modules, str(making.make("tfidf").library), None)
    missing = r"'sklearn'.*'ragauge\[workflow\]'"
    for call in (
        lambda: ragauge.method("tfidf").answer(model, questions[0]),
        lambda: ragauge.evaluate("tfidf", questions, model),
    ):
        with pytest.raises(ragauge.UserError, match=missing):
            call()


def test_temporary_records_go_with_their_results(model, questions):
    made = ragauge.evaluate("naive", questions, model, limit=1, max_new_tokens=2)
    folder = made.folder
    assert folder.exists()
    del made
    gc.collect()
    assert not folder.exists()
