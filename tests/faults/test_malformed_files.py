"""Hundreds of malformed files, over the readers of files from others or from crashes.

A reader accepts a file or refuses it in one line that names it (`UserError`); it does not hang,
take memory for sizes that a header makes up, or leave part of a folder as if it were complete.
"""

import bz2
import gzip
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

import damage
from archives import zipped
from damage import Reader, damaged, damaged_document, damaged_lines, survives
from ragauge.assets import archive, store
from ragauge.datasets.base import loader
from ragauge.datasets.base.examples import read_examples, write_examples
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.record_writer import RecordWriter
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.documents import ShardShare
from ragauge.testing import write_checkpoint, write_questions
from written_records import KEYS, answered, run

Make = Callable[[Path], Reader]
READERS = {}


def reader(make):
    READERS[make.__name__] = make
    return make


# --- records ---


@reader
def finished_records(folder):
    path = folder / "x.jsonl"
    run(path)
    return Reader(path, partial(records.read, path), damaged_lines, files=80)


@reader
def interrupted_records(folder):
    """What a killed run left: the next one ends with every question once, or says what is wrong."""
    out = folder / "x.jsonl"
    with RecordWriter(out, {"method": "bm25"}, KEYS) as writer:
        for key in KEYS:
            writer.append(answered(key))
    left = writer.partial.read_bytes()

    def go_on():
        out.unlink(missing_ok=True)
        with RecordWriter(out, {"method": "bm25"}, KEYS) as writer:
            for key in set(KEYS) - writer.done:
                writer.append(answered(key))
            writer.finish({})
        assert [record.key for record in records.read(out)] == list(KEYS)
        assert not writer.partial.exists()

    go_on()
    writer.partial.write_bytes(left)

    def read():
        go_on()
        writer.partial.write_bytes(left)

    return Reader(writer.partial, read, damaged_lines, files=80)


# --- data sets and corpora ---

LINES = {
    "musique": '{"id": "2hop__1", "question": "how many", "answer": "2", "answer_aliases": ["two"], '
    '"answerable": true, "paragraphs": [{"title": "Paris", "paragraph_text": "It has 2 bridges.", '
    '"is_supporting": true}, {"title": "Rome", "paragraph_text": "Yes.", "is_supporting": false}]}',
    "longbench_hotpotqa": '{"_id": "a", "input": "how many", "answers": ["2"], '
    '"context": "Paris has 2 bridges."}',
    "wiki_single": '{"id": "w1", "question": "how many", "answers": ["2"], "documents": '
    '[{"title": "Paris", "text": "It has 2 bridges.", "is_gold": true}]}',
}


@reader
def nq_open(folder):
    path = write_questions(folder / "nq.jsonl")
    return Reader(path, partial(loader.load, "nq_open", data=path, gold_position=1), damaged_lines)


@reader
def nq_open_gzipped(folder):
    path = folder / "nq.jsonl.gz"
    path.write_bytes(gzip.compress(write_questions(folder / "nq.jsonl").read_bytes()))
    return Reader(path, partial(loader.load, "nq_open", data=path), files=60)


@pytest.mark.parametrize("name", LINES)
def test_data_sets(name, tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(f"{LINES[name]}\n")
    survives(Reader(path, partial(loader.load, name, data=path), damaged_lines))


@reader
def written_questions(folder):
    path = folder / "written.jsonl"
    write_examples(path, loader.load("nq_open", data=write_questions(folder / "nq.jsonl")))
    return Reader(path, partial(read_examples, path), damaged_lines, files=60)


EXPORT = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><page><title>Paris</title><ns>0</ns><revision>'
    f"<text>'''Paris''' has [[bridge]]s. == Bridges == {'There are many bridges. ' * 200}</text>"
    "</revision></page></mediawiki>"
)
CORPORA = {
    "c4.jsonl": b'{"text": "Paris has bridges.", "title": "Paris"}\n{"text": "Rome, too."}\n',
    "articles.txt.gz": gzip.compress(b"Paris has bridges.\n\nRome, too.\n"),
    "text.bz2": bz2.compress(EXPORT.encode()),
}


@pytest.mark.parametrize("name", CORPORA)
def test_corpora(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(CORPORA[name])
    inner = damaged
    if name == "text.bz2":  # whole as an archive, damaged in what it holds
        inner = lambda _: damaged(EXPORT.encode()).map(bz2.compress)  # noqa: E731
    survives(Reader(path, lambda: list(Corpus((str(path),)).documents(ShardShare())), inner))


# --- assets ---


WEIGHTS = bytes(range(256)) * 4


def test_archives_are_unpacked_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.zip"
    target = tmp_path / "home" / "unpacked"
    config = '{"model_type": "llama"}' * 9
    path.write_bytes(zipped({"model/config.json": config, "model/weights.bin": WEIGHTS}))

    def make(folder):
        return {"members": archive.unpack(path, folder)}

    def read():
        shutil.rmtree(target.parent, ignore_errors=True)
        try:
            store.Store(target.parent).build(target, make)
        except UserError:
            assert not list(target.parent.iterdir())
            raise
        assert {p.resolve().is_relative_to(target) for p in target.rglob("*")} == {True}

    survives(Reader(path, read, files=60))


@reader
def asset_manifest(folder):
    """A damaged manifest makes an asset that is fetched anew, whatever it says."""
    target = folder / "asset"

    def make(unfinished):
        (unfinished / "weights").write_bytes(b"whole")
        return {}

    def read():
        store.Store(folder).build(target, make)
        assert store.contents(target)["weights"]["bytes"] == 5
        assert (target / "weights").read_bytes() == b"whole"

    read()
    return Reader(target / store.MANIFEST, read, damaged_document)


# --- checkpoints ---

CHECKPOINT = {
    "config.json": damaged_document,
    "model.safetensors": damaged,
    "tokenizer.json": damaged_document,
    "tokenizer_config.json": damaged_document,
}


@pytest.mark.parametrize("name", CHECKPOINT)
def test_checkpoints(name, tmp_path):
    from ragauge.engines.loading import load_lm

    folder = write_checkpoint(tmp_path / "checkpoint")
    read = partial(load_lm, str(folder))
    survives(Reader(folder / name, read, CHECKPOINT[name], named="checkpoint"))


# --- settings ---

EXPERIMENT = """\
run: small
models: {smollm2-135m-instruct: {dtype: float32}}
datasets: {nq_open: {limit: 3}}
methods: {naive: {}, bm25_k1: {method: bm25, top_k: 1}}
generation: {max_new_tokens: 16, documents_gb: 1.0}
latency: {methods: [naive], dataset: nq_open, trials: 3}
items: [superposition_table_1]
"""


@reader
def configuration(folder):
    from ragauge.config import loading

    path = folder / "small.yaml"
    path.write_text(EXPERIMENT)

    def read():
        loading.load(path)

    def of_values(_):
        return damage.damaged_json(yaml.safe_load(EXPERIMENT)).map(
            lambda value: json.dumps(value).encode()
        )

    return Reader(path, read, lambda whole: damaged(whole) | of_values(whole), files=120)


@reader
def token_counts(folder):
    from ragauge.cost import tokens

    path = folder / "counts.json"
    path.write_text('{"preamble": 39, "documents": [137, 130], "query": 11, "task": 13}')
    return Reader(path, lambda: tokens.load(str(path)), damaged_document, files=60)


@pytest.mark.parametrize("name", READERS)
def test_malformed_files_are_refused_in_one_line(name, tmp_path):
    survives(READERS[name](tmp_path))
