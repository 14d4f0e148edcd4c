"""A run as far as it can be read, and what it lacks: no damaged file can stop the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import records
from ragauge.results import pipelines
from ragauge.results.runs import Runs, Variant, read_latency

UNREADABLE = "cannot be read: "


@dataclass(frozen=True)
class Problem:
    """Something that is missing from the report, or doubtful in it."""

    what: str
    path: str  # of the file
    why: str
    rule: str  # of the workflow, that makes the file


class ReadableRuns(Runs):
    """Runs in which a variant that cannot be read counts as missing, with the reason."""

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(_readable(variant) for variant in super().variants)

    @cached_property
    def latencies(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(found for found in self._latency_files.values() if not isinstance(found, str))

    @cached_property
    def damaged_latencies(self) -> dict[Path, str]:
        """Latency files that cannot be read, each with the reason."""
        return {path: found for path, found in self._latency_files.items() if isinstance(found, str)}

    @cached_property
    def _latency_files(self) -> dict[Path, Mapping[str, Any] | str]:
        return {path: _latency(path) for path in self.latency_paths}


def problems(runs: ReadableRuns) -> list[Problem]:
    """What the run lacks, in the order of the configuration; items are checked where they are read."""
    return [*_answers(runs), *_latencies(runs), *_data(runs), *_pipelines(runs)]


def _readable(variant: Variant) -> Variant:
    """The variant, marked as missing if a record of it cannot be read or used."""
    try:
        if not variant.missing and not variant.records:
            return replace(variant, missing="holds no record")
        _ = variant.shape, variant.traces
    except UserError as error:
        told = str(error).removeprefix(f"{variant.path}:").strip()
        return replace(variant, missing=f"{UNREADABLE}{'line ' if told[:1].isdigit() else ''}{told}")
    except (TypeError, ValueError, KeyError, AttributeError) as error:  # a trace or shape of another program
        return replace(variant, missing=f"{UNREADABLE}unsupported trace or shape: {error}")
    return variant


def _answers(runs: ReadableRuns) -> Iterator[Problem]:
    asked = {tuple(job): runs.config.limit(job) for job in runs.config.answers()} if runs.config else None
    for variant in runs.variants:
        key = (variant.dataset, variant.model, variant.name)
        limit, foreign = (asked.get(key), key not in asked) if asked is not None else (None, False)
        for why in _doubts(variant, limit, foreign):
            what = f"Answers of {variant.name} on {variant.dataset} with {variant.model}"
            yield Problem(what, str(variant.path), why, "answers")


def _doubts(variant: Variant, limit: int | None, foreign: bool) -> Iterator[str]:
    """What is wrong with a variant's records. `limit`: the questions asked for, None for all of the data set."""
    if variant.missing:
        yield variant.missing
        return
    if foreign:
        yield "not part of this experiment: the configuration does not ask for it; shown nevertheless"
    if records.read_meta(variant.path) is None:
        yield f"{records.meta_path(variant.path).name} is missing or not JSON: method and machine are unknown"
    if limit and len(variant.records) < limit:
        yield f"holds {len(variant.records)} of up to {limit} questions asked for"
    if variant.failed:
        first = next(iter(variant.failed.values()))
        yield f"{len(variant.failed)} of {len(variant.records)} questions failed, counted as wrong; the first: {first}"


def _latencies(runs: ReadableRuns) -> Iterator[Problem]:
    for path, why in runs.damaged_latencies.items():
        yield _of_latency(path, why)
    for dataset, model in runs.config.timed() if runs.config else ():
        path = runs.folder / "latency" / dataset / f"{model}.json"
        if not path.exists():
            yield _of_latency(path, "no such file")
    for latency in runs.latencies:
        if latency.get("refused"):
            path = runs.folder / "latency" / latency["dataset"] / f"{latency['model']}.json"
            yield _of_latency(path, f"refused: {latency['refused']}")


def _of_latency(path: Path, why: str) -> Problem:
    return Problem(f"Latency of {path.stem} on {path.parent.name}", str(path), why, "latency")


def _data(runs: ReadableRuns) -> Iterator[Problem]:
    for dataset in dict.fromkeys(variant.dataset for variant in runs.run):
        path = runs.folder / "data" / f"{dataset}.jsonl"
        if not path.is_file():
            yield Problem(f"Questions of {dataset}", str(path), "no such file: no titles of documents", "data")


def _pipelines(runs: ReadableRuns) -> Iterator[Problem]:
    try:
        found = pipelines.pipelines(runs)
    except UserError as error:
        yield Problem("Generation with retrieval", str(runs.folder / "pipelines"), f"{UNREADABLE}{error}", "pipeline")
        return
    for pipeline in found:
        for why in _pipeline_doubts(pipeline):
            yield Problem(f"Pipeline {pipeline.name}", str(pipeline.path), why, "pipeline")


def _pipeline_doubts(pipeline: pipelines.PipelineEntry) -> Iterator[str]:
    if pipeline.missing:
        yield pipeline.missing
        return
    try:
        failed = pipeline.failed
    except UserError as error:
        yield f"{UNREADABLE}{error}"
        return
    if not pipeline.all_records:
        yield "holds no record"
    if failed:
        yield f"{len(failed)} of {len(pipeline.all_records)} sequences failed; the first: {failed[0].reason}"


def _latency(path: Path) -> Mapping[str, Any] | str:
    """A latency file, or why it cannot be used."""
    try:
        found = read_latency(path)
    except UserError as error:
        return f"{UNREADABLE}{str(error).removeprefix(f'{path}: ')}"
    rows = found.get("rows")
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        return f"{UNREADABLE}it has no list of trials under `rows`"
    if not all(isinstance(found.get(key) or {}, dict) for key in ("protocol", "provenance")):
        return f"{UNREADABLE}`protocol` and `provenance` must be objects"
    if not all(_is_seconds(row.get(key)) for row in rows for key in ("total_s", "first_token_s")):
        return f"{UNREADABLE}a trial's seconds are not a number"
    return found


def _is_seconds(value: Any) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 60)
