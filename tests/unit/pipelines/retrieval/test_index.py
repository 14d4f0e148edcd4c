"""Indexes and the retriever: equal to exact search where all is scanned, parts equal to the whole,
refusals.
"""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tiny_database
from json_lines import last_value
from killed_processes import in_child
from ragauge.cli._main import main
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.pipelines.database import embed
from ragauge.pipelines.database.coder import Coder
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.retrieval.index import Index
from ragauge.pipelines.retrieval.recall import exact_search, resumable_exact_search
from ragauge.pipelines.retrieval.retriever import LinearTime, Query
from tiny_database import CHUNK, DIM, INDEX, CountEncoder, queries


def test_embeddings_are_those_of_the_detokenised_chunks(folder, database):
    part = embed.Embeddings(folder, 1)
    ids = np.arange(database.chunk_starts[1], database.chunk_starts[2])
    plain = CountEncoder().encode([database.tokenizer.decode(row) for row in database.tokens(ids)])
    np.testing.assert_allclose(part.vectors, plain, atol=1e-3)  # fp16
    assert part.vectors.dtype == np.float16


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
def test_exact_search_is_the_sorted_list_of_all_distances(folder, metric):
    vectors = Vectors.open(folder, INDEX.model_copy(update={"metric": metric}))
    own = np.concatenate([part.vectors for part in vectors.embeddings]).astype(np.float32)
    vectors_of_queries = queries(5)
    products = vectors_of_queries @ own.T
    distances = (
        -products
        if metric == "inner_product"
        else ((vectors_of_queries[:, None] - own[None]) ** 2).sum(-1)
    )
    found, ids = exact_search(vectors, vectors_of_queries, len(own), range(3))
    np.testing.assert_allclose(np.abs(found), np.abs(np.sort(distances, axis=1)), atol=1e-5)
    np.testing.assert_allclose(
        np.take_along_axis(distances, ids, 1), np.sort(distances, axis=1), atol=1e-5
    )
    assert (np.sort(ids) == np.arange(len(own))).all(), "every vector once"


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
@pytest.mark.parametrize("nlist", [4, 300])  # a list's number takes one byte, or two
def test_codes_are_faisss(metric, nlist):
    import faiss

    draw = np.random.default_rng(0)
    vectors = embed.normalised(draw.standard_normal((3000, 48)).astype(np.float32))
    measure = {"l2": faiss.METRIC_L2, "inner_product": faiss.METRIC_INNER_PRODUCT}[metric]
    slow = faiss.index_factory(48, f"IVF{nlist},PQ8", measure)
    slow.cp.min_points_per_centroid = slow.pq.cp.min_points_per_centroid = 1
    slow.cp.niter = slow.pq.cp.niter = 2
    slow.do_polysemous_training = False
    slow.train(vectors)
    fast = faiss.clone_index(slow)
    ids = draw.permutation(len(vectors)).astype(np.int64)
    slow.add_with_ids(vectors, ids)
    coder = Coder(fast)
    coder.add(vectors[:1000], ids[:1000])
    coder.add(vectors[1000:], ids[1000:])
    assert fast.ntotal == slow.ntotal == len(vectors)
    others = 0
    for number in range(nlist):
        lists = [made.invlists for made in (slow, fast)]
        held = [
            faiss.rev_swig_ptr(one.get_ids(number), one.list_size(number)).tolist() for one in lists
        ]
        assert held[0] == held[1]
        codes = [
            faiss.rev_swig_ptr(one.get_codes(number), 8 * one.list_size(number)) for one in lists
        ]
        others += int((codes[0] != codes[1]).sum())
    assert others <= 2  # of 24,000: two centroids as near, up to rounding


@pytest.mark.parametrize("filled", [None, 3000])
def test_a_sample_has_no_more_vectors_than_its_count_evenly_over_the_shards(folder, filled):
    vectors = Vectors.open(folder, INDEX.model_copy(update={"filled": filled}))
    assert [
        len(vectors.sample(count)) for count in (7, vectors.total * 2 // 3, vectors.total, 10**6)
    ] == [*(7, vectors.total * 2 // 3, vectors.total, vectors.total)]
    if filled is None:
        every = np.concatenate([block for shard in range(3) for block, _ in vectors.blocks(shard)])
        assert (vectors.sample(10**6) == every).all()
        assert (vectors.sample(9) == every[np.arange(9) * len(every) // 9]).all()


def test_drawn_vectors_lie_around_their_own_chunk(folder):
    vectors = Vectors.open(folder, INDEX.model_copy(update={"filled": 5_000}))
    own = np.concatenate([part.vectors for part in vectors.embeddings]).astype(np.float32)
    cosines = []
    for block, ids in vectors.blocks(1):
        if ids[0] >= len(vectors.database):
            np.testing.assert_allclose(np.linalg.norm(block, axis=1), 1, rtol=1e-5)
            cosines.append((block * own[ids % len(vectors.database)]).sum(1))
    assert np.mean(np.concatenate(cosines)) == pytest.approx(0.7, abs=0.03)


def test_an_index_of_another_database_is_refused(tmp_path):
    corpus = tiny_database.write_corpus(tmp_path / "c.jsonl", 60)
    recipe = tiny_database.recipe(corpus, tiny_database.write_tokenizer(tmp_path / "t"), 1)
    small = INDEX.model_copy(update={"nlist": 2})
    tiny_database.build(tmp_path / "db", recipe, settings=small)
    tiny_database.write_corpus(corpus, 60, seed=5)
    database = tiny_database.build_chunks(tmp_path / "db", recipe)
    with pytest.raises(UserError, match="an index of another database"):
        Index(database, "ivf")
    with pytest.raises(UserError, match="embeddings of an earlier state of shard 0"):
        Vectors.open(tmp_path / "db", small)


# --- the retriever ---


def same(a, b):
    # an embedding's last bit depends on the batch that it is made in
    rows = [[replace(row, distance=0.0) for row in one.rows] for one in (a, b)]
    assert (rows[0], a.nprobe) == (rows[1], b.nprobe)
    distances = [[row.distance for row in one.rows] for one in (a, b)]
    np.testing.assert_allclose(*distances, 1e-5)


def test_a_chunk_finds_itself_its_document_and_what_follows(retriever):
    database = retriever.database
    chunk = np.flatnonzero(database.continuations(np.arange(40)) >= 0)[3]
    [found] = retriever.search([Query(tokens=database.tokens(np.array([chunk]))[0], k=3, nprobe=8)])
    # product codes may confuse it with a chunk that is as near
    own = found.rows[found.ids.index(chunk)]
    assert own.document == database.documents(np.array([chunk]))[0]
    assert own.tokens == database.tokens(np.array([chunk]))[0]
    assert own.continuation == database.tokens(np.array([chunk + 1]))[0]
    assert (np.diff([row.distance for row in found.rows]) >= 0).all()
    assert set(found.seconds) == {"encode", "search", "lookup"}


def test_tokens_and_their_text_are_one_query_and_a_batch_is_its_queries(
    retriever,
):
    tokens = retriever.database.tokens(np.array([4]))[0]
    batch_queries = [
        Query(tokens=tokens, k=2, nprobe=2),
        Query(text=retriever.database.tokenizer.decode(tokens), k=2, nprobe=2),
        Query(text="other words", k=5, nprobe=1, continuation=3),
        Query(text="other words", k=5, continuation=0),
    ]
    batch = retriever.search(batch_queries)
    same(batch[0], batch[1])
    for query, found in zip(batch_queries, batch, strict=True):
        same(found, retriever.search([query])[0])
        assert len(found.rows) == query.k
        assert max(len(row.continuation) for row in found.rows) <= query.continuation * CHUNK
    assert batch[3].nprobe == INDEX.nprobe
    assert retriever.search([]) == []


def test_a_budget_takes_the_largest_nprobe_that_fits(retriever):
    with pytest.raises(UserError, match="budget_s requires a retriever whose latency was measured"):
        retriever.search([Query(text="a", budget_s=1.0)])
    retriever.latency = LinearTime(intercept_s=0.1, slope_s=0.1)
    budgets = {0.05: 1, 0.35: 2, 0.5001: 4, 9.0: 8}
    assert {
        b: retriever.search([Query(text="a", budget_s=b)])[0].nprobe for b in budgets
    } == budgets
    assert [n.nprobe for n in retriever.search([Query(text="a", budget_s=1.0002)] * 2)] == [4, 4]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"text": "a", "nprobe": 9}, "nprobe 9: must be from 1 to 8"),
        ({"text": "a", "tokens": [1]}, "query: give tokens or text"),
        ({"text": "a", "continuation": -1}, "query: continuation must be at least 0"),
    ],
)
def test_a_query_that_cannot_be_asked_is_told(retriever, query, message):
    with pytest.raises(UserError, match=message):
        retriever.search([Query(**query)])


# --- killed, damaged


def test_a_killed_embedding_goes_on_within_its_shard(folder, tmp_path, monkeypatch):
    """At the block that it had reached; the vectors are those of an undisturbed build."""
    killed = tmp_path / "db"
    undisturbed = tmp_path / "undisturbed"
    for name in ("database", "shards", "near_duplicates"):
        for place in (killed, undisturbed):
            shutil.copytree(folder / name, place / name)
    monkeypatch.setattr(embed, "BLOCK_CHUNKS", 32)
    embed.build_embeddings(undisturbed, 1, tiny_database.Choice())
    whole = undisturbed / "embeddings/00001/vectors.bin"
    encoded = []
    encode = CountEncoder.encode

    def counted(encoder, texts):
        encoded.append(len(texts))
        if len(encoded) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(encoder, texts)

    with monkeypatch.context() as patch:
        patch.setattr(CountEncoder, "encode", counted)
        assert (
            in_child(lambda: embed.build_embeddings(killed, 1, tiny_database.Choice()))
            == -signal.SIGKILL
        )
    (partial,) = (killed / "embeddings").glob(".00001.*.partial")
    with partial.open("ab") as file:
        file.write(b"part of a block")
    stale = partial.with_name(".00001.of-another-encoder.partial")
    stale.write_bytes(b"other vectors")
    blocks = -(-len(np.fromfile(whole, np.float16)) // DIM // 32)
    asked = []
    monkeypatch.setattr(
        CountEncoder, "encode", lambda self, texts: asked.append(len(texts)) or encode(self, texts)
    )
    assert embed.build_embeddings(killed, 1, tiny_database.Choice())
    assert len(asked) == blocks - 2
    assert (killed / "embeddings/00001/vectors.bin").read_bytes() == whole.read_bytes()
    assert not partial.exists()
    assert not stale.exists()


def test_verifying_finds_a_flipped_bit_in_any_file_and_says_what_it_read(folder, tmp_path, capsys):
    """The inverted lists' file among them, whose size does not change."""
    copy = Path(shutil.copytree(folder, tmp_path / "db"))
    files = [
        path
        for path in copy.rglob("*")
        if path.is_file() and path.name not in (".ragauge", "manifest.json")
    ]
    files = [path for path in files if not path.name.startswith(".") and path.name != "recall.json"]
    assert any(path.name == "index.ivfdata" for path in files)
    assert folders.verify(copy) == (len(files), sum(path.stat().st_size for path in files))
    for path in files:
        content = bytearray(path.read_bytes())
        if not content:
            continue
        content[len(content) // 2] ^= 4
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{path.name}: not the bytes"):
            folders.verify(copy)
        path.write_bytes(before)
    command = ["index", "verify", "--database", str(copy), "--set", "shards=3", "--json"]
    sizes = ["nlist=8", "pq_bytes=8", "nprobe=4", "iterations=2"]
    assert main([*command, *(word for size in sizes for word in ("--set", f"index.{size}"))]) == 0
    printed = last_value(capsys.readouterr().out)
    assert (printed["files"], printed["bytes"]) == folders.verify(copy)


def test_an_exact_search_goes_on_after_a_kill(folder, tmp_path):
    vectors = Vectors.open(folder, INDEX)
    saved = tmp_path / "saved"
    queries = vectors.sample(20)[:5]
    exact = exact_search(vectors, queries, 10, range(3))[1]
    assert (resumable_exact_search(vectors, queries, saved) == exact).all()
    lines = saved.read_bytes().split(b"\n")
    saved.write_bytes(b"\n".join(lines[:3]) + b"\ncut o")  # two shards, and half a line
    assert (resumable_exact_search(vectors, queries, saved) == exact).all()


def test_recall_is_of_the_recipe_and_the_encoder_that_the_index_was_made_with(
    folder,
    tmp_path,
    monkeypatch,
    capsys,
):
    """Whatever settings the command line has, or has not."""
    tiny_database.stand_in(monkeypatch)
    command = ["index", "recall", "--database", str(folder), "--out", str(tmp_path / "r.json")]
    assert main(command) == 0
    settings = json.loads((tmp_path / "r.json").read_text())["settings"]
    assert settings == INDEX.model_dump()
    monkeypatch.setattr(embed.EncoderChoice, "sha256", "another")
    assert main(command) == 2
    assert "its vectors were not made with the encoder 'minilm'" in capsys.readouterr().err
