"""`ragauge serve` of a real index: its answers are the retriever's, its parts' are those of the
whole, and mistakes.
"""

import numpy as np
import pytest

import service_parts as parts
import tiny_database
import tiny_models
from ragauge.cli._main import main
from ragauge.pipelines.database import chunking, embed
from ragauge.pipelines.indexes.ivf_pq import IvfPq
from ragauge.pipelines.retrieval.retriever import Query, Retriever
from ragauge.pipelines.service import process
from ragauge.testing import write_checkpoint
from tables import cases

SHARDS = 2
NLIST = 4
RECIPE = IvfPq(nlist=NLIST, pq_bytes=4, nprobe=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A database of some hundred chunks in two shards, with an index of it and that index in two
    parts.
    """
    home = tmp_path_factory.mktemp("retrieval")
    corpus = tiny_database.write_corpus(home / "corpus.jsonl", 30)
    tokenizer = write_checkpoint(home / "model")
    made = home / "database"
    encoder = embed.EncoderChoice(str(tiny_models.encoder(home / "encoder")), "torch", 1)
    tiny_database.build_chunks(
        made, tiny_database.recipe(corpus, tokenizer, SHARDS, chunking.HeldOutSplit("none"))
    )
    for shard in range(SHARDS):
        embed.build_embeddings(made, shard, encoder)
    tiny_database.build_index(made, "ivf", RECIPE, parts=SHARDS)
    return made


@pytest.fixture(scope="module")
def retriever(folder):
    encoder = embed.EncoderChoice(encoder_of(folder), "torch", 1)
    return Retriever.open(folder, "ivf", encoder)


def encoder_of(folder):
    return str(folder.parent / "encoder")


def options(folder, *more):
    return ["--encoder", encoder_of(folder), "--engine", "torch", "--threads", "1", *more]


@pytest.fixture(scope="module")
def running(folder):
    with process.running(folder / "indexes" / "ivf", options=options(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def address(running):
    return running.address


def queries(retriever):
    chunks = retriever.database.tokens(np.arange(0, 60, 7))
    made = [
        Query(tokens=tokens, k=1 + i % 4, nprobe=1 + i % NLIST, continuation=i % 3)
        for i, tokens in enumerate(chunks)
    ]
    return [
        *made,
        Query(text="an old bridge over the river", k=3),
        Query(text="music", k=200, nprobe=1),
    ]


def test_requests_searched_together_get_what_each_gets_by_itself(retriever):
    all_queries = queries(retriever)
    requests = [all_queries[:1], all_queries[1:4], all_queries[4:]]
    for answers, request in zip(retriever.search_together(requests), requests, strict=True):
        parts.assert_same(answers, retriever.search(request))


@pytest.mark.parametrize(
    ("arguments", "message"),
    cases("""
[--port, '70000'] -> --port: must be less than or equal to 65535, not '70000'
[--tls-cert, a.pem] -> --tls-cert and --tls-key: give both or neither
[--tls-cert, a.pem, --tls-key, b.pem] -> TLS: a.pem and b.pem cannot be used: No such file
[--token-file, none] -> none: cannot be read: No such file
[--cores, x] -> cores 'x': must be a list of cores
[--part, 0/3] -> part-0-of-3: no merged index
[--host, 203.0.113.1, --insecure] -> cannot listen on 203.0.113.1:0
[--database, none] -> no chunk database
"""),
)
def test_a_mistake_is_one_line(folder, arguments, message, capsys):
    given = [
        "serve",
        "--database",
        str(folder),
        "--index",
        "ivf",
        "--port",
        "0",
        "--no-calibrate",
        *options(folder),
    ]
    assert main([*given, *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("ragauge: error: ")
    assert message in error


def test_another_host_without_credentials_is_refused_before_anything_is_opened(
    monkeypatch,
    caplog,
    capsys,
    folder,
):
    assert main(["serve", "--database", "/nowhere", "--index", "ivf", "--host", "0.0.0.0"]) == 2
    assert "--host 0.0.0.0: other machines can reach it; give --tls-cert" in capsys.readouterr().err
    monkeypatch.setattr(process, "serve", lambda *_, **__: None)
    given = options(folder, "--no-calibrate", "--host", "0.0.0.0", "--port", "0", "--insecure")
    assert main(["serve", "--database", str(folder), "--index", "ivf", *given]) == 0
    assert "other machines can reach it; --insecure" in caplog.text
