"""Malformed folders and messages: databases and indexes, requests, replies of endpoints, runs that
a report is of.
"""

import shutil
from functools import partial

import grpc
import numpy as np
import pytest
import yaml
from hypothesis import given, settings

import service_parts
from damage import SETTINGS, Reader, bounded, damaged, damaged_document, damaged_lines, survives
from endpoints import Reply, says, served
from ragauge.cli._main import main
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.methods.evidence.chat import Endpoint
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service import wire
from ragauge.report.page import page
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_latency, write_variant

# --- databases ---

PARTS = (
    "shards/00000/documents.bin",
    "shards/00001/documents.jsonl",
    "shards/00001/tokens.bin",
    "database/manifest.json",
    "embeddings/00001/manifest.json",
    "indexes/ivf/merged/index.faiss",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A chunk database of two shards with its embeddings and its index."""
    pytest.importorskip("faiss")
    from tiny_database import build, recipe, write_corpus, write_tokenizer

    folder = tmp_path_factory.mktemp("built")
    build(
        folder / "db",
        recipe(write_corpus(folder / "c.jsonl"), write_tokenizer(folder / "tokenizer")),
    )
    return folder / "db"


@pytest.mark.parametrize("part", PARTS)
def test_databases(built, part, tmp_path):
    """A damaged part is refused, or gives answers where it has its size still and only `index
    verify` would tell.
    """
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.database.embed import Embeddings
    from ragauge.pipelines.retrieval.index import Index

    folder = shutil.copytree(built, tmp_path / "db")

    def read():
        database = Database(folder)
        for shard in database.shards:
            list(shard.evaluation())
            shard.tokens[:1], shard.lengths[:1]
        database.documents(np.arange(len(database)))
        vectors = Embeddings(folder, 1).vectors[:3].astype("float32")
        Index(database, "ivf").search(vectors, 3, 4)
        database.tokens([0, len(database) - 1])

    whole = (folder / part).read_bytes()
    cut_short = [whole[:size] for size in (0, 1, len(whole) // 2, len(whole) - 3)]
    for content in cut_short:
        (folder / part).write_bytes(content)
        with pytest.raises(UserError):
            read()
    (folder / part).write_bytes(whole)
    damage = damaged_document if part.endswith(".json") else damaged
    survives(Reader(folder / part, read, damage, 25, named=str(folder)))


# --- messages ---


@pytest.fixture(scope="module")
def server():
    with service_parts.server(
        service_parts.Toy(), service_parts.ABOUT, detokenize=service_parts.spelled
    ) as running:
        yield running


def test_requests(server):
    """Whatever bytes are sent: an answer, or a refusal that is the sender's fault; never a defect,
    never silence.
    """
    whole = wire.search_request(
        [Query(text="a", k=3), Query(tokens=[5, 6], nprobe=2)]
    ).SerializeToString()
    with grpc.insecure_channel(server.address) as channel:
        calls = [
            channel.unary_unary(f"/{wire.SERVICE}/{name}")
            for name in ("Search", "Detokenize", "Describe")
        ]

        @settings(max_examples=150, **SETTINGS)
        @given(damaged(whole))
        def attempt(content):
            for call in calls:
                try:
                    call(content, timeout=10)
                except grpc.RpcError as error:
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017 (or no error)

        attempt()


def test_replies_of_an_endpoint():
    whole = says("Which city has two bridges?").body
    replies = []

    @settings(max_examples=60, **SETTINGS)
    @given(damaged_document(whole))
    def draw(content):
        replies.append(Reply(content))

    draw()
    with served(replies) as there:
        endpoint = Endpoint(there.url, model="m", attempts=1, timeout_s=10)
        for _ in replies:
            try:
                with bounded():
                    assert endpoint.complete([{"role": "user", "content": "?"}], 9).strip()
            except UserError as error:
                assert there.url in str(error)  # noqa: PT017 (or no error)


# --- runs ---

EXAMPLE = (
    '{"key": "q0", "question": "Which?", "documents": [{"title": "A", "text": "x"}], "answers": ["x"], '
    '"gold": [0]}\n'
)
PREDICTIONS = (
    '{"rows": [{"item": "superposition_table_1", "model": "MPT-7B-Instruct", "keys": {"method": "naive", '
    '"top_k": ""}, "compute_cycles": 1.5, "theoretical_speedup": 1.5, "critical_path_speedup": 1.5}]}'
)
MACHINE = (
    '{"bandwidth_bytes_per_s": {"median": 1e9, "low": 1e9, "high": 2e9, "n": 5}, "matmul_flop_per_s": '
    '{"float32": {"median": 1e9, "low": 1e9, "high": 2e9, "n": 5}}, "threads": 1, "load_share": 0.0}'
)
EXPERIMENT = """\
run: small
models: {smollm2-135m-instruct: {}}
datasets: {nq_open: {}}
methods: {naive: {}, bm25_k1: {method: bm25, top_k: 1}}
latency: {methods: [naive], dataset: nq_open}
items: [superposition_table_1]
"""
FILES = {
    f"answers/nq_open/{MODEL}/naive.jsonl": damaged_lines,
    f"answers/nq_open/{MODEL}/naive.meta.json": damaged_document,
    f"latency/nq_open/{MODEL}.json": damaged_document,
    "data/nq_open.jsonl": damaged_lines,
    "predictions.json": damaged_document,
}


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "results"
    write_variant(folder, "naive", "naive", [False, True, None])
    write_variant(folder, "bm25_k1", "bm25", [True, True, False], params={"top_k": 1})
    write_latency(folder, {"naive": [2.0, 2.2], "bm25_k1": [0.5, 0.4]})
    (folder / "data").mkdir()
    (folder / "data" / "nq_open.jsonl").write_text(EXAMPLE)
    (folder / "predictions.json").write_text(PREDICTIONS)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_report_is_made_or_the_file_is_named(name, run_folder, tmp_path):
    settled = loading.parse(yaml.safe_load(EXPERIMENT), "small.yaml")
    out = tmp_path / "out"
    survives(
        Reader(
            run_folder / name, lambda: page.write(Runs(run_folder, settled), out), FILES[name], 15
        )
    )


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(MACHINE)
    return path


def test_machine_files(machine, tmp_path, capsys):
    from ragauge.cost import machine as measured

    survives(Reader(machine, partial(measured.read, machine), damaged_document, 60))
    machine.write_text("{}")
    command = "time --methods naive --dataset nq_open --model smollm2-135m-instruct"
    options = f"--random-weights --machine {machine} --out {tmp_path / 'x.json'}"
    assert main(f"{command} {options}".split()) == 2
    assert "machine.json: bandwidth_bytes_per_s" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
