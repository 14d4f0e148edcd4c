"""A clock that jumps: no duration is a difference of the wall clock, and no answer depends on it."""

from __future__ import annotations

import ast
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ragauge.cli import main
from ragauge.io import records
from tiny_checkpoint import write_checkpoint, write_questions

STAMPS = {
    "cost/machine.py",  # the date of a result, from which nothing is taken
    "engines/tuning.py",  # the age of a table that was measured under load, and is measured again
    "retrieval/service/finished.py",  # the date of a line of the request log
    "verbs/cache.py",  # the age of what is kept, told and pruned on request
}
WALL = {("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime"), ("datetime", "utcnow")}
WALL |= {("datetime", "now"), ("datetime", "today"), ("date", "today")}
DAY_S = 86_400


def test_nothing_reads_the_wall_clock_but_the_date_of_a_result(root: Path) -> None:
    package = root / "src" / "ragauge"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if (node.value.id, node.attr) in WALL
    }
    assert found == STAMPS


def test_answers_and_times_are_those_of_a_steady_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = write_checkpoint(tmp_path / "model"), write_questions(tmp_path / "nq.jsonl")
    kept = tmp_path / "documents"
    command = ["run", "--method", "superposition", "--dataset", "nq_open", "--data", str(data), "--model", str(model)]
    command += ["--threads", "1", "--max-new-tokens", "5", "--document-store", str(kept), "--out"]
    assert main([*command, str(tmp_path / "steady.jsonl")]) == 0
    for place, entry in enumerate(sorted(kept.iterdir())):  # used tomorrow, and yesterday
        at = time.time() + (DAY_S if place % 2 else -DAY_S)
        os.utime(entry, (at, at))
    jumps = itertools.cycle((0, DAY_S, -DAY_S))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    started = time.monotonic()
    assert main([*command, str(tmp_path / "jumping.jsonl")]) == 0
    wall_s = time.monotonic() - started
    steady, jumping = (records.read(tmp_path / f"{name}.jsonl") for name in ("steady", "jumping"))
    assert [said(record) for record in steady] == [said(record) for record in jumping]
    for record in jumping:
        assert 0 <= (record.online_s or 0) <= wall_s
        assert 0 <= (record.first_token_s or 0) <= wall_s
        assert all(0 <= call.get("loading_s", 0) <= wall_s for call in record.trace)


def said(record: records.Record) -> dict[str, Any]:
    return record.model_dump(include={"key", "text", "kept", "saliency", "tokens"})
