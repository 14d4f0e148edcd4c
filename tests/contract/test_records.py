"""The committed records of a run: complete, free of the data set's texts, and the same again once
unpacked.
"""

import csv
import gzip
import json
from pathlib import Path

import pytest

import records

ROOT = Path(__file__).parents[2]
RECORD = (
    '{"key":"k","status":"ok","question":"who","answers":["Röntgen"],"wordless_answers":[],"gold":[1],'
    '"evidence":[{"document":0,"start":3,"stop":10,"text":"Röntgen","verbatim":true},'
    '{"document":null,"start":null,"stop":null,"text":"it was he","verbatim":false}],"text":"he"}\n'
)
HEADER = '{"version": 1, "fingerprint": {"method": "oracle"}}\n'
SEALED = f'{RECORD[:-2]},"seal":"0123456789abcdef"}}\n'
QUESTION = '{"key":"k","question":"who","answers":["Röntgen"],"documents":[{"title":"","text":"by Röntgen"}]}\n'
PACKED = sorted(path for path in (ROOT / "reports").glob("*/answers/*/*/*.jsonl.gz"))


def test_records_are_the_same_once_unpacked(tmp_path):
    results, reports, again = (tmp_path / name for name in ("results", "reports", "again"))
    files = {
        "answers/nq/m/naive.jsonl": RECORD,
        "answers/nq/m/naive.meta.json": "{}",
        "answers/nq/m/oracle.jsonl.partial": HEADER + SEALED,
        "latency/nq/m.json": '{"rows":[]}',
        "pipelines/retro.jsonl": '{"key":"0:Anarchism#0"}\n',
    }
    for folder in (results, again):
        (folder / "data").mkdir(parents=True)
        (folder / "data/nq.jsonl").write_text(QUESTION)
    for name, text in files.items():
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(text)
    with (results / "answers/nq/m/oracle.jsonl.partial").open("a") as file:
        file.write(SEALED[:60])  # torn: it is being written
    records.pack(results, reports)
    for path in reports.glob("answers/*/*/*.gz"):
        assert "Röntgen" not in gzip.decompress(path.read_bytes()).decode()
    records.unpack(again, reports)
    assert {name: (again / name).read_text() for name in files} == files


def test_an_unfinished_file_goes_once_it_is_whole(tmp_path):
    results, reports = tmp_path / "results", tmp_path / "reports"
    answers = results / "answers/nq/m"
    answers.mkdir(parents=True)
    (answers / "oracle.jsonl.partial").write_text(HEADER + SEALED)
    records.pack(results, reports)
    (answers / "oracle.jsonl.partial").rename(answers / "oracle.jsonl")
    records.pack(results, reports)
    assert [path.name for path in reports.glob("**/*.gz")] == ["oracle.jsonl.gz"]


@pytest.mark.parametrize(
    "path", PACKED, ids=lambda path: f"{path.parts[-5]}-{path.name.removesuffix('.jsonl.gz')}"
)
def test_committed_records_stand_behind_the_committed_scores(path):
    """Each has its questions in scores.csv, and none of the data set's texts."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert not any(name in line for line in lines for name in records.TEXTS)
    passages = [
        passage
        for line in lines
        for passage in line["evidence"] or ()
        if passage["document"] is not None
    ]
    assert not any(passage["text"] for passage in passages)
    dataset, model, variant = *path.parts[-3:-1], path.name.removesuffix(".jsonl.gz")
    rows = csv.DictReader((path.parents[3] / "scores.csv").read_text().splitlines())
    scored = {
        row["question"]
        for row in rows
        if (row["dataset"], row["model"]) == (dataset, model) and row[variant]
    }
    assert scored == {line["key"] for line in lines}
