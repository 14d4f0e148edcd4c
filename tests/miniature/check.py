"""What a run of the miniature must not have: a failed question, a text that is cut where the paper cuts none, an empty
cell whose inputs are planned, a cell that shows another quantity than the one that was planned."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge.experiment.plan.paths import Paths
from ragauge.experiment.schema import Config
from ragauge.results.cells import Status

# Cells that stay empty in the paper's own experiment as well: item, and how the reason begins.
EMPTY = {
    ("superposition_table_6", "not in the trace of"): "what a switched-off part would cost",
    ("cfic_table_6", "not timed"): "the paper's times of the search are not planned",
    ("cfic_table_8", "not timed"): "the paper's times of the search are not planned",
    ("cfic_table_7", "not judged"): "no judge is planned",
    ("piperag_table_1", "no PipeRAG is at once"): "a claim that random models need not bear out",
    ("frontier", "not timed"): "long texts are not timed",
}
ANSWERING = "of the answering run"  # what the frontier shows where nothing was timed


def faults(config: Config, folder: Path) -> list[str]:
    """One line a fault of the run of `config` in a folder; none where all is well."""
    return [*_answer_faults(config, folder), *_pipeline_faults(config, folder), *_item_faults(config, folder)]


def _answer_faults(config: Config, folder: Path) -> Iterator[str]:
    pattern = Paths(config.run).answers
    for job in config.answers():
        place = pattern.format(dataset=job.dataset, model=job.model, variant=job.variant) + ".jsonl"
        whole = "max_length" not in config.datasets[job.dataset].options  # else LongBench's own protocol cuts it
        for record in _records(folder / place):
            if record is None or record["status"] != "ok":
                yield f"{place}: {record['reason'] if record else 'no record'}"
            elif whole and record.get("truncated"):
                yield f"{place}: {record['key']}: {record['truncated']} tokens were cut out"


def _pipeline_faults(config: Config, folder: Path) -> Iterator[str]:
    for label in config.pipelines:
        place = Paths(config.run).pipeline.format(pipeline=label) + ".jsonl"
        for record in _records(folder / place):
            if record is None or record["status"] != "ok":
                yield f"{place}: {record['reason'] if record else 'no record'}"


def _records(path: Path) -> list[dict[str, Any] | None]:
    """The records of a file; [None] where there is none."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines] or [None]


def _item_faults(config: Config, folder: Path) -> Iterator[str]:
    timed = set(config.timed())
    for item in config.item_names():
        path = folder / Paths(config.run).reports / f"{item}.csv"
        if not path.is_file():
            yield f"{item}: was not rendered"
            continue
        with path.open(newline="", encoding="utf-8") as file:
            found = {problem for row in csv.DictReader(file) if (problem := _problem(item, row, timed))}
        yield from sorted(f"{item}: {problem}" for problem in found)


def _problem(item: str, row: Mapping[str, str], timed: set[tuple[str, str]]) -> str:
    """What is wrong with a cell; nothing of one that is empty for a reason of the paper's own plan."""
    keys = ", ".join(
        value for value in (row.get(key, "") for key in ("model", "dataset", "method", "quantity")) if value
    )
    if row["status"] == Status.COULD_NOT_RUN and not any(
        name == item and re.match(reason, row["note"]) for name, reason in EMPTY
    ):
        return f"{keys}: {row['note'] or 'empty'}"
    if ANSWERING in row["note"] and (row.get("dataset", ""), row.get("model", "")) in timed:
        return f"{keys}: {row['note']}"
    return ""
