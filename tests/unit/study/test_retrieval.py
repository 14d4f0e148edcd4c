"""A study's retrieval: rankings, gold passages, measures, and the item that shows them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import ndcg_score

from endpoints import entries, served
from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.methods.rankers.cross_encoder import CrossEncoder
from ragauge.methods.rankers.dense import Encoder
from ragauge.report.items import study_retrieval
from ragauge.results.runs import Runs
from ragauge.study import retrieval, writing
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion
from ragauge.study.retrieval import Retrieval, gold_passages
from study_files import study_arguments
from tiny_models import cross_encoder, encoder

TEXTS = [
    "Tea is grown in Assam.",
    "Coffee grows in Kenya.",
    "Assam is a state.",
    "Nothing of that kind.",
]
PASSAGES = [Passage(title, text) for title, text in zip("abcd", TEXTS, strict=True)]
SAME = {title: title for title in "abcd"}
ASKED = [
    StudyQuestion("Where is tea grown?", ("Assam",)),
    StudyQuestion("Where does coffee grow?", ("Kenya",), "b"),
]


def rankings(how, asked, passages, count, folder):
    queries = [question.question for question in asked]
    return retrieval.Searcher(how, passages, folder).rankings(queries, count)


def test_the_sum_of_reciprocal_ranks_fuses_rankings():
    [made] = retrieval.fused([[[0, 1, 2]], [[2, 3, 0]]], depth=3)
    scores = {0: 1 / 61 + 1 / 63, 1: 1 / 62, 2: 1 / 63 + 1 / 61, 3: 1 / 62}
    assert made == sorted(scores, key=lambda p: (-scores[p], p))[:3] == [0, 2, 1]


def test_a_cross_encoder_orders_the_first_passages_again(tmp_path):
    source = cross_encoder(tmp_path / "cross")
    [order] = retrieval.reranked(["Where is tea?"], TEXTS, [[3, 2, 1, 0]], 3, source)
    model = CrossEncoder(Path(source))
    alone = [float(model.scores("Where is tea?", [text])[0]) for text in TEXTS]  # without padding
    assert order == [*sorted([3, 2, 1], key=lambda i: -alone[i]), 0]
    np.testing.assert_allclose(model.scores("Where is tea?", TEXTS), alone, rtol=1e-5)
    made = rankings(Retrieval("bm25", reranker=source), ASKED, PASSAGES, 2, tmp_path)
    assert list(made) == ["bm25", "reranked"]
    assert model.scores("?", ["long " * 100]).shape == (1,)  # cut


def test_what_is_no_cross_encoder_is_refused(tmp_path):
    with pytest.raises(UserError, match="scores 2 classes, not one"):
        CrossEncoder(Path(cross_encoder(tmp_path / "two", classes=2)))
    with pytest.raises(UserError, match=r"the checkpoint has no tensor '(bert|classifier)"):
        CrossEncoder(encoder(tmp_path / "encoder"))


def test_embeddings_are_made_once_a_shard(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    texts = [" ".join(str(number) for number in draw.integers(0, 10_000, 12)) for _ in range(60)]
    source = str(encoder(tmp_path / "encoder"))
    queries = ["Which numbers?", "long long"]
    model = Encoder(Path(source))
    folder = tmp_path / "embeddings"
    monkeypatch.setattr(retrieval, "SHARD", 25)
    expected = np.argsort(
        -(model.encode(queries, query=True) @ model.encode(texts).T), axis=1, kind="stable"
    )
    made = retrieval.dense(queries, texts, 10, source, folder)
    assert made == expected[:, :10].tolist()
    assert len(list(folder.iterdir())) == 3
    encoded = Encoder.encode
    monkeypatch.setattr(
        Encoder,
        "encode",
        lambda self, texts, query=False: encoded(self, texts, query=query) if query else None,
    )
    assert retrieval.dense(queries, texts, 10, source, folder) == made
    assert len(retrieval.dense(queries, texts[:25], 10, source, folder)[0]) == 10


def test_a_question_that_shares_no_word_with_any_passage_is_named(tmp_path, caplog):
    """Its passages stay in the order of the corpus, which fusion leaves out."""
    asked = [StudyQuestion("Wohin?", ()), *ASKED]
    how = Retrieval("fused", str(encoder(tmp_path / "encoder")))
    made = rankings(how, asked, PASSAGES, 2, tmp_path)
    text = "BM25: 1 of 3 questions share no word with any passage, so passages stay in their order: Wohin?"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        text
    ]
    assert made["bm25"][0] == [0, 1, 2, 3]
    assert made["fused"][0] == made["dense"][0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Zo\u00eb Cr\u00e8me", "Das Cafe\u0301 geho\u0308rt Zoe\u0308 Cre\u0300me."),
        ("office", "The o\ufb03ce is closed."),
        ("Holmberg", "Greta Holm\u00adberg."),
        ("43 m", "It is 43\u00a0m high."),
        ("it's", "It\u2019s open."),
    ],
)
def test_gold_are_passages_that_hold_the_words_in_any_unicode_form(answer, text):
    assert gold_of(StudyQuestion("?", (answer,)), [Passage("a", text), PASSAGES[1]]) == [0]


def gold_of(question, passages=PASSAGES, **repeats):
    [gold] = gold_passages([question], passages, {**SAME, **repeats})
    return gold


def test_gold_are_passages_that_hold_an_answer_in_the_gold_document():
    assert gold_of(StudyQuestion("?", ("assam!",))) == [0, 2]
    assert gold_of(StudyQuestion("?", ("Assam",), "c")) == [2]
    assert gold_of(StudyQuestion("?", ("in other words",), "c")) == [2]  # the document is trusted
    assert gold_of(StudyQuestion("?", ("in other words",))) == []
    assert gold_of(StudyQuestion("?", ("the",))) == []  # nothing is left of it
    assert gold_of(
        StudyQuestion("?", ("12",)), [Passage("a", "Built in 2012."), Passage("b", "By 12 men.")]
    ) == [1]
    # no blanks between words
    assert gold_of(StudyQuestion("?", ("京都",)), [Passage("a", "私は京都に住む。")]) == [0]


def test_all_gold_documents_that_are_none_are_named_at_once():
    asked = [StudyQuestion("?", (), gold) for gold in ("z", "a", None, "yy", "z")]
    with pytest.raises(UserError, match=r"not a document of the corpus: 'z'; 'yy'$"):
        list(gold_passages(asked, PASSAGES, SAME))


def test_a_file_name_that_only_one_document_has_names_it():
    passages = [Passage("Tea", "Assam."), Passage("Coffee", "Assam."), Passage("x/b", "Assam.")]
    names = {"Tea": "Tea", "x/tea.md": "Tea", "x/tea": "Tea", "y/b.md": "Coffee", "x/b": "x/b"}
    for gold, expected in (("tea.md", 0), ("tea", 0), ("b.md", 1), ("x/b", 2)):
        asked = [StudyQuestion("?", ("Assam",), gold)]
        assert list(gold_passages(asked, passages, {**names, "Coffee": "Coffee"})) == [[expected]]
    twice = {**names, "Coffee": "Coffee", "y/b": "Coffee"}
    with pytest.raises(UserError, match="'b', did you mean"):
        list(gold_passages([StudyQuestion("?", (), "b")], passages, twice))


@pytest.mark.parametrize(
    ("gold", "meant"),
    [
        ("Getting-Started.md", "guides/getting-started"),
        ("docs\\api\\start", "api/start"),
        ("guides/start", "guides/start.md"),
        ("guides/geting-started", "guides/getting-started"),
    ],
)
def test_a_gold_document_that_is_none_may_mean_another(gold, meant):
    titles = ["intro", "api/start", "guides/start.md", "guides/getting-started"]
    with pytest.raises(
        UserError,
        match=rf"of the corpus: {gold!r}, did you mean {meant!r}\?".replace("\\", "."),
    ):
        list(gold_passages([StudyQuestion("?", (), gold)], [], {title: title for title in titles}))


def test_a_document_that_repeats_the_gold_one_is_gold_too():
    assert gold_of(StudyQuestion("?", ("Assam",), "c"), c="a") == [0, 2]
    assert gold_of(StudyQuestion("?", ("Assam",), "c"), PASSAGES[:2], c="a") == [0]  # c was dropped


FOUND = """
corpus:
  documents: 9
  passages: 30
  near_duplicate_documents: 1
  near_duplicate_passages: 4
  dropped_passages: 4
skipped: {a.pdf: empty}
retrieval: {chosen: fused, encoder: minilm, reranker: null, top: 3, depth: 20}
questions:
- {id: "1", known_by: document, gold: 1, ranks: {bm25: [1], dense: [2], fused: [1]}}
- {id: "2", known_by: answer, gold: 2, ranks: {bm25: [], dense: [1, 3], fused: [1, 4]}}
- {id: "3", known_by: answer, gold: 0, ranks: {bm25: [], dense: [], fused: []}}
"""


def found(**changes):
    """A retrieval.json of two questions with gold, of which BM25 finds one, and one without."""
    return yaml.safe_load(FOUND) | changes


def runs(folder, content):
    data = folder / "questions.jsonl"
    data.touch()
    (folder / "retrieval.json").write_text(json.dumps(content), encoding="utf-8")
    settings = {
        "run": "t",
        "models": {"m": {"source": "smollm2-135m-instruct"}},
        "datasets": {"q": {"dataset": "study", "data": str(data)}},
        "methods": {"naive": {}},
        "items": ["study_retrieval"],
    }
    return Runs(folder / "results", loading.parse(settings, "t.yaml"))


def lines_of(table):
    return {(r["retriever"], r["quantity"], r["k"]): r for r in table.to_dict("records")}


def test_the_item_has_every_ranking_with_intervals(tmp_path):
    made = runs(tmp_path, found())
    table = study_retrieval.table(made)
    lines = lines_of(table)
    assert lines["bm25", "success", 1]["measured"] == 0.5
    assert lines["fused", "recall", 3]["measured"] == 0.75
    assert lines["fused", "mrr", 10]["measured"] == 1
    cell = lines["dense", "mrr", 10]
    assert (cell["measured"], cell["n"]) == (0.75, 2)
    assert 0 < cell["low"] < 0.5
    assert cell["high"] == pytest.approx(1, abs=0.01)
    expected = (
        "gold document stated for 1 of 2; 1 of 3 questions not counted: no passage answers them"
    )
    assert cell["note"] == expected
    assert lines["fused", "mrr", 10]["note"].startswith("gave the questions their passages")
    assert lines["bm25", "ndcg_difference", 10]["note"] == "less fused"
    assert max(k for _, quantity, k in lines if quantity == "recall") == 20
    assert len(study_retrieval.draw(table).axes) == 2
    assert study_retrieval.footer(made, table) == (
        "Measured on q: 3 questions; 9 documents (1 near-duplicate); 30 passages (4 near-duplicates, left "
        "out of the search); 1 file skipped; encoder: minilm; intervals: 95%."
    )


def test_the_small_print_says_who_wrote_the_questions_and_what_a_budget_left_out(
    tmp_path,
):
    written = yaml.safe_load("""
{wanted: 5, kept: 3, attempts: 12, writer: w, reader: r,
  left_out: {malformed: 7, duplicate: 0, without_documents: 2}}
""")
    made = runs(
        tmp_path,
        found(generation=written, budget={"seconds": 600, "left_out": ["timed trials: 1 of 5"]}),
    )
    text = study_retrieval.footer(made, study_retrieval.table(made))
    assert (
        "Questions written by w in 12 attempts: 3 kept of 5 asked for; left out: 7 malformed, 2 without documents"
        in text
    )
    assert "kept is what r answers with the passage and not without it." in text
    assert text.endswith("Left out to fit the budget: timed trials: 1 of 5.")


def test_without_gold_the_item_says_so(tmp_path):
    table = study_retrieval.table(runs(tmp_path, found(questions=found()["questions"][2:])))
    assert set(table[table["retriever"] != ""]["status"]) == {"could_not_run"}
    [text] = study_retrieval.draw(table).axes[0].texts
    assert "no passage of the corpus" in " ".join(text.get_text().split())


def test_the_item_is_rendered_from_the_studys_file(tmp_path):
    config = runs(tmp_path, found()).config
    assert config is not None
    assert Plan(config, 1).items.inputs("study_retrieval") == {
        "retrieval": [str(tmp_path / "retrieval.json")]
    }
    every = config.model_copy(update={"items": "all"})
    assert "study_retrieval" in every.item_names()
    assert "study_retrieval" not in every.model_copy(update={"datasets": {}}).item_names()


@pytest.mark.parametrize(("answer", "items"), [("Assam", ["study_retrieval"]), ("Ceylon", [])])
def test_a_study_retrieves_as_it_is_told(tmp_path, answer, items):
    command = [*study_arguments(tmp_path, answer), "--out", str(tmp_path / "out")]
    (tmp_path / "texts" / "bad.txt").write_bytes(b"\xff\xfe\xff")
    dense = ["--retrieval", "fused", "--encoder", str(encoder(tmp_path / "encoder"))]
    assert main([*command, *dense]) == 0
    made = json.loads((tmp_path / "out" / "retrieval.json").read_text(encoding="utf-8"))
    assert made["skipped"] == {"bad.txt": "not UTF-8 text (byte 0)"}
    assert made["retrieval"]["chosen"] == "fused"
    assert made["questions"][0]["gold"] == (answer == "Assam")
    settings = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text(encoding="utf-8"))
    assert settings["items"] == ["frontier", "study_answers", *items]


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_scikit_learn(tmp_path, seed):
    """On random rankings of 40 passages by two systems, of which one stops early: nDCG by its
    function; recall and MRR from the definitions, over rank by rank.
    """
    draw = random.Random(seed)
    golds = [draw.sample(range(40), draw.randrange(1, 6)) for _ in range(25)]
    rankings = {
        name: [draw.sample(range(40), count) for _ in golds]
        for name, count in (("bm25", 40), ("retrieved", 12))
    }
    questions = [StudyQuestion(f"q{number}", ("a",)) for number in range(25)]
    how = Retrieval("bm25", file="run.trec")
    report = retrieval.report(how, rankings, questions, golds, 10, {"bm25": 0.5})
    made = runs(tmp_path, found(**report))
    table = study_retrieval.table(made)
    lines = lines_of(table)
    relevant = np.array([[i in gold for i in range(40)] for gold in golds], float)
    for system, orders in rankings.items():
        scores = np.full(relevant.shape, -1000.0)
        for row, order in enumerate(orders):
            scores[row, order] = -np.arange(len(order))
        # what a system did not return has no gain
        returned = np.where(scores > -1000.0, scores, -1000.0 - relevant)
        cell = lines[system, "ndcg", 10]
        assert cell["measured"] == pytest.approx(ndcg_score(relevant, returned, k=10))
        assert cell["low"] < cell["measured"] < cell["high"]
        pairs = list(zip(orders, golds, strict=True))
        recalls = [len({*order[:10]} & {*gold}) / len(gold) for order, gold in pairs]
        assert lines[system, "recall", 10]["measured"] == pytest.approx(np.mean(recalls))
        first = [
            next((1 / rank for rank, i in enumerate(order[:10], 1) if i in gold), 0.0)
            for order, gold in pairs
        ]
        assert lines[system, "mrr", 10]["measured"] == pytest.approx(np.mean(first))
    # as far as both were ranked
    assert {max(k for name, q, k in lines if q == "recall" and name == s) for s in rankings} == {10}
    assert "bm25 0.5" in study_retrieval.footer(made, table)


def written(folder):
    files = {name: (folder / name).read_text() for name in (writing.DATA, writing.PASSAGES)}
    lines = {name: list(map(json.loads, text.splitlines())) for name, text in files.items()}
    return json.loads((folder / writing.RETRIEVAL).read_text()), *lines.values()


def test_a_study_takes_passages_from_servers_and_files(tmp_path, monkeypatch, capsys):
    """Embeddings and reranking of a server, a run of another system, and its clock apart."""

    def reply(body):
        if "input" in body:
            return entries("data", "embedding", [[len(text), 1, -2] for text in body["input"]])
        return entries("results", "relevance_score", map(len, body["documents"]))

    command = study_arguments(tmp_path)
    for number in range(6):
        (tmp_path / "texts" / f"{number}.md").write_text(
            f"Assam has {number} rivers. {'x' * number}"
        )
    with served(whole=reply) as endpoint:
        monkeypatch.setenv("RAGAUGE_ENCODER_BASE_URL", endpoint.url)
        monkeypatch.setenv("RAGAUGE_ENCODER_API_KEY", "sk-hidden-78")
        monkeypatch.setenv("RAGAUGE_RERANKER_BASE_URL", endpoint.url)
        options = ["--retrieval", "openai:e1", "--reranker", "openai:r1", "--out", f"{tmp_path}/a"]
        assert main([*command, *options, "--top", "3"]) == 0
    assert [r["path"] for r in endpoint.requests].count("/v1/rerank") == 1
    account, _, passages = written(tmp_path / "a")
    how = account["retrieval"]
    assert (how["kind"], how["chosen"], how["encoder"]) == ("dense", "reranked", "openai:e1")
    assert set(how["seconds"]) == {"dense", "reranked"}
    assert all(seconds >= 0 for seconds in how["seconds"].values())
    every = "".join(p.read_text() for p in (tmp_path / "a").rglob("*.json*"))
    assert "sk-hidden-78" not in every + capsys.readouterr().out
    run = tmp_path / "run.jsonl"
    order = [passages[i]["id"] for i in (4, 2, 0)]
    run.write_text(json.dumps({"question": "Where is tea grown?", "passages": order}))
    options = ["--retrieved", str(run), "--out", f"{tmp_path}/b", "--top", "3"]
    assert main([*command, *options]) == 0
    account, [question], again = written(tmp_path / "b")
    assert account["retrieval"]["chosen"] == "retrieved"
    assert list(account["questions"][0]["ranks"]) == ["bm25", "retrieved"]
    assert [d["text"] for d in question["documents"]] == [again[i]["text"] for i in (4, 2, 0)]
    assert main([*command, "--retrieval", "bm52", "--out", f"{tmp_path}/c"]) == 2
    error = capsys.readouterr().err
    assert "--retrieval" in error
    assert "bm25" in error
