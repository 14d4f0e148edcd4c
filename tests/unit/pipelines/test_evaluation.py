"""Texts of other corpora, predicted with a database that holds none of them: cut, marked against,
read, told apart.
"""

import json
from dataclasses import replace

import pytest

import service_parts
from json_lines import write_lines
from ragauge.cli import _main
from ragauge.config.loading import parse
from ragauge.errors import UserError
from ragauge.io.records import SequenceRecord, read_kind
from ragauge.pipelines.database.chunking import (
    HeldOutSplit,
    build_evaluation_set,
    build_shard,
    gather,
    mark,
)
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.database import Database, EvaluationSet
from ragauge.pipelines.database.documents import ShardShare
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.evaluation import texts
from ragauge.pipelines.indexes.ivf_pq import IvfPq
from ragauge.pipelines.retrieval.settings import DatabaseSettings, EvaluationSetSettings
from ragauge.testing import write_checkpoint
from retro_parts import EXACT, ExactRetriever, tokens
from synthetic_run import MODEL
from tables import cases

CITIES = ("Oslo", "Rome", "Lima", "Bonn", "Pune")
NEWS = "news"
WEB = "web"
ALL = HeldOutSplit("all")


def article(name):
    return " ".join(f"{name} {i * 37 % 101} stands by the {i}th river." for i in range(40))


def write_articles(path, articles):
    return write_lines(path, ({"text": text, "title": text.split()[0]} for text in articles))


def cut_set(corpus, split=ALL):
    return EvaluationSetSettings(corpus=str(corpus), part=split.kind, share=split.share)


def made(root, sets=(NEWS, WEB)):
    """A database of five articles; the news have one of them and another text, the web a changed
    one and two others.
    """
    model = write_checkpoint(root / "model", num_hidden_layers=1)
    changed = article("Lima").replace("20th river", "20th lake")
    corpus = write_articles(root / "corpus.jsonl", [article(name) for name in CITIES])
    write_articles(root / "news.jsonl", [article("Rome"), article("Kyiv")])
    write_articles(root / "web.jsonl", [changed, article("Nice"), article("York")])
    kept = DatabaseSettings(corpus=str(corpus), tokenizer=str(model), evaluation="none", shards=1)
    build_shard(root / "db", kept, 0)
    for label in sets:
        build_evaluation_set(root / "db", label, cut_set(root / f"{label}.jsonl"))
    mark(root / "db", 1, 0, sets)
    gather(root / "db", 1, sets)
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("sets"))


# --- near-duplicates ---


def test_an_index_leaves_them_out_unless_it_keeps_them(folder):
    database = Database(folder / "db")
    for kept, choice in ((False, "drop"), (True, "keep")):
        vectors = Vectors(database, (None,), IvfPq(near_duplicates=choice))  # type: ignore[arg-type]
        found = {CITIES[number] for number in database.documents(vectors.rows(0))}
        assert ({"Rome", "Lima"} <= found) == kept
        assert {"Oslo", "Bonn", "Pune"} <= found


def test_a_set_that_has_changed_since_is_refused(tmp_path):
    made(tmp_path)
    write_articles(tmp_path / "news.jsonl", [article("Kyiv")])
    build_evaluation_set(tmp_path / "db", NEWS, cut_set(tmp_path / "news.jsonl"))
    with pytest.raises(
        UserError, match="news: has changed since the database was gathered; gather it again"
    ):
        texts(Database(tmp_path / "db"), 100, evaluation=NEWS)


# --- texts ---


def test_a_set_is_cut_as_held_out_text_is(folder, tmp_path):
    corpus = Corpus((str(folder / "web.jsonl"),))
    for split in (HeldOutSplit("tail", 0.25), HeldOutSplit("documents", 0.9), ALL):
        build_evaluation_set(tmp_path, split.kind, cut_set(folder / "web.jsonl", split))
        cut = [text.text for text in EvaluationSet(tmp_path, split.kind).evaluation()]
        whole = list(corpus.documents(ShardShare()))
        assert cut == [text for document in whole if (text := split(document)[1])]
    with pytest.raises(UserError, match="gives the evaluation set 'none' no text"):
        build_evaluation_set(
            tmp_path, "none", cut_set(folder / "web.jsonl", HeldOutSplit("documents", 1e-9))
        )


def test_published_texts_are_whole_first_documents_cut_at_their_end(folder, tmp_path):
    """Those shorter than the cut are among them; a stretch is one document, and a limit counts
    documents.
    """
    found = texts(Database(folder / "db"), 250, evaluation=WEB, published=True)
    [whole, *_] = texts(Database(folder / "db"), 10**6, 1, WEB, published=True)
    assert [text.key.split(":")[1] for text in found] == ["Lima#0", "Nice#0", "York#0"]
    assert found[0].ids == whole.ids[:250]
    assert len(texts(Database(folder / "db"), 250, 2, WEB, published=True)) == 2
    corpus = write_articles(tmp_path / "short.jsonl", ["Kyiv lies by a river. " * 2, "x"])
    made(tmp_path, ())
    build_evaluation_set(tmp_path / "db", "short", cut_set(corpus))
    mark(tmp_path / "db", 1, 0, ["short"])
    gather(tmp_path / "db", 1, ["short"])
    kept = texts(Database(tmp_path / "db"), 1024, evaluation="short", published=True)
    assert [len(text.ids) > 1 for text in kept] == [True] * len(kept)
    assert len(kept[0].ids) < 64


# --- the command line ---


def test_the_steps_of_an_index_cut_and_mark_sets(tmp_path, capsys):
    made(tmp_path, ())
    sets = {
        label: {"corpus": str(tmp_path / f"{label}.jsonl"), "part": "all"} for label in (NEWS, WEB)
    }
    common = [
        f"--database={tmp_path / 'db'}",
        f"--set=corpus={tmp_path / 'corpus.jsonl'}",
        "--set=shards=1",
    ]
    common += [f"--set=tokenizer={tmp_path / 'model'}", f"--set=evaluation_sets={json.dumps(sets)}"]
    for step in (
        ["evaluation", "--evaluation=news"],
        ["evaluation", "--evaluation=web"],
        ["mark", "--shard=0"],
    ):
        assert _main.main(["index", *step, *common]) == 0
    assert _main.main(["index", "gather", *common]) == 0
    database = Database(tmp_path / "db")
    assert [CITIES[number] for number in database.near_duplicates] == ["Rome", "Lima"]
    counts = [
        database.counts[f"near_duplicate_documents{of}"] for of in ("", "_of_news", "_of_web")
    ]
    assert counts == [2, 1, 1]
    assert _main.main(["index", "evaluation", "--evaluation=newz", *common]) == 2
    printed = capsys.readouterr().err
    assert "unknown evaluation set 'newz'; did you mean 'news'? known: news, web" in printed
    assert "Traceback" not in printed


def pipeline(folder, out, *options):
    common = ["--database", str(folder / "db"), "--model", str(folder / "model"), "--tokens", "100"]
    return _main.main(
        ["piperag", "run", *common, "--limit", "3", "--threads", "1", "--out", str(out), *options]
    )


def test_a_pipeline_reads_another_corpus(folder, tmp_path, capsys):
    database = Database(folder / "db")
    exact = ExactRetriever([tokens(300, 2), tokens(400, 4)])
    with service_parts.server(
        exact, replace(EXACT, tokenizer=database.manifest["tokenizer"])
    ) as server:
        common = ["--schedule", "retro", "--server", server.address]
        for label, count in ((NEWS, 2), (WEB, 3)):
            out = tmp_path / f"{label}.jsonl"
            assert pipeline(folder, out, *common, "--evaluation", label) == 0
            records = list(read_kind(out, SequenceRecord))
            assert [(record.status, record.document) for record in records[:count]] == [
                ("ok", -1)
            ] * count
            meta = json.loads(out.with_suffix(".meta.json").read_text())
            assert meta["specification"]["pipeline"]["evaluation"] == label
            assert meta["fingerprint"]["evaluation_sha256"] == database.evaluation_set(label).sha256
        assert exact.queries, "the database was asked"
        capsys.readouterr()
        assert pipeline(folder, tmp_path / "news.jsonl", *common, "--evaluation", WEB) == 2
        assert "evaluation_sha256" in capsys.readouterr().err, (
            "records of another text are not gone on with"
        )
    assert (
        pipeline(folder, tmp_path / "x.jsonl", "--schedule", "no_retrieval", "--evaluation", "newz")
        == 2
    )
    assert (
        "unknown evaluation set 'newz'; did you mean 'news'? known: news, web"
        in capsys.readouterr().err
    )


# --- configurations ---


def config(**changes):
    given = {
        "run": "t",
        "models": {MODEL: {}},
        "databases": {
            "c4": {
                "corpus": "c4-en",
                "evaluation_sets": {"wikipedia": {}, "news": {"corpus": "c4-en"}},
            }
        },
        "pipelines": {"retro": {}},
    }
    return parse(given | changes, "c.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    cases("""
{pipelines: {retro: {evaluation: newz}}} -> pipelines.retro.evaluation: unknown evaluation set 'newz'
{staleness: {c4: {evaluation: newz}}} ->
  staleness.c4.evaluation: unknown evaluation set 'newz'; did you mean 'news'? known: c4, news, wikipedia
{databases: {c4: {evaluation_sets: {wikipedai: {}}}}} ->
  databases.c4.evaluation_sets.wikipedai.corpus: unknown corpus 'wikipedai'; did you mean 'wikipedia'?
{databases: {c4: {evaluation_sets: {wikipedia: {part: half}}}}} -> databases.c4.evaluation_sets.wikipedia.part:
{databases: {wikipedia: {}, c4: {evaluation_sets: {wikipedia: {}}}}} ->
  databases.c4.evaluation_sets.wikipedia: a database already has this label
"""),
)
def test_a_mistake_is_told_in_one_line(changes, message):
    with pytest.raises(UserError) as error:
        config(**changes)
    assert str(error.value).startswith(f"c.yaml: {message}")
    assert "\n" not in str(error.value)


def test_a_set_is_of_the_corpus_that_its_key_names_and_a_database_without_sets_knows_its_own_text_alone():
    sets = config().databases["c4"].evaluation_sets
    assert {label: one.corpus for label, one in sets.items()} == {
        "wikipedia": "wikipedia",
        "news": "c4-en",
    }
    databases = {"c4": {"corpus": "c4-en"}}
    assert (
        config(databases=databases, pipelines={"retro": {"evaluation": "c4"}})
        .pipelines["retro"]
        .evaluation
        == "c4"
    )
    with pytest.raises(UserError, match="unknown evaluation set 'news'; known: c4"):
        config(databases=databases, pipelines={"retro": {"evaluation": "news"}})


# --- items ---
