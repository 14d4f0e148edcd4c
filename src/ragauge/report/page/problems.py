"""Missing and doubtful parts of a run, for the page that shows the rest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragauge.io import records
from ragauge.results.pipelines import pipelines
from ragauge.results.runs import WITHOUT_LABELS, Runs, Variant

UNLABELLED = (
    "no question has one: nothing says which answers are right; quality is agreement with the full"
    " prompt"
)


@dataclass(frozen=True)
class Problem:
    """Something that is missing from the report, or doubtful in it."""

    what: str
    path: Path  # of the file
    why: str
    rule: str  # of the workflow, that makes the file


Problems = Iterator[Problem]


def problems(runs: Runs) -> list[Problem]:
    """List the problems of a run, in the order of the configuration; items are checked elsewhere."""
    return [*_answers(runs), *_latencies(runs), *_data(runs), *_pipelines(runs)]


def _answers(runs: Runs) -> Problems:
    limits = {tuple(job): runs.config.limit(job) for job in runs.config.answers()}
    for variant in runs.variants:
        key = (variant.dataset, variant.model, variant.name)
        for why in _doubts(variant, limits.get(key), is_configured=key in limits):
            what = f"Answers of {variant.name} on {variant.dataset} with {variant.model}"
            yield Problem(what, variant.path, why, "answers")


def _data(runs: Runs) -> Problems:
    data = {v.dataset: runs.folder / "data" / f"{v.dataset}.jsonl" for v in runs.run}
    for dataset, path in data.items():
        if not path.is_file():
            why = "no such file: no titles of documents"
            yield Problem(f"Questions of {dataset}", path, why, "data")
    for dataset, path in data.items():
        if runs.metrics(dataset) == WITHOUT_LABELS:
            yield Problem(f"Known answers of {dataset}", path, UNLABELLED, "data")


def _doubts(variant: Variant, limit: int | None, is_configured: bool) -> Iterator[str]:
    """Say what is wrong with a variant's records; `limit` is the configured number of questions, None
    for all.
    """
    if variant.missing or not variant.records:
        yield variant.missing or "holds no record"
        return
    if not is_configured:
        yield "not part of this experiment: the configuration does not ask for it; shown nevertheless"
    if not variant.meta:
        yield f"{records.meta_path(variant.path).name} is missing or not JSON: method and machine are unknown"
    if limit and len(variant.records) < limit:
        yield f"holds {len(variant.records)} of up to {limit} questions asked for"
    wordless = [a for record in variant.records.values() for a in record.wordless_answers]
    if wordless:
        which = (
            f"{len(wordless)} known answers are empty after normalisation, such as {wordless[0]!r}"
        )
        yield f"{which}: they fit any prediction by the papers' formulas"
    if variant.failed:
        first = next(iter(variant.failed.values()))
        yield f"{len(variant.failed)} of {len(variant.records)} questions failed, counted as wrong; the first: {first}"


def _latencies(runs: Runs) -> Problems:
    refused = {
        (latency.dataset, latency.model): f"refused: {latency.refused}"
        for latency in runs.latencies
        if latency.refused
    }
    for dataset, model in dict.fromkeys([*runs.config.measured("latency"), *refused]):
        path = runs.folder / "latency" / dataset / f"{model}.json"
        if why := refused.get((dataset, model)) or ("" if path.exists() else "no such file"):
            yield Problem(f"Latency of {model} on {dataset}", path, why, "latency")


def _pipelines(runs: Runs) -> Problems:
    for pipeline in pipelines(runs):
        why = pipeline.missing or ("" if pipeline.all_records else "holds no record")
        if failed := pipeline.failed:
            why = f"{len(failed)} of {len(pipeline.all_records)} sequences failed; the first: {failed[0].reason}"
        if why:
            yield Problem(f"Pipeline {pipeline.name}", pipeline.path, why, "pipeline")
