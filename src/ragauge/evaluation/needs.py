"""What an experiment will need: downloads, memory, disk, and a lower bound of GPU hours.

Hours are rooflines (`cost.roofline`) of the methods' own traces on the models' shapes, so they need no weights: the
sum over questions and calls of max(2 * MACs / matrix rate, bytes / bandwidth) on the stated GPU, documents read again
for each question and every answer at its maximum length. They are floors: launches, activations and everything between
calls count nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from ragauge import methods, registry
from ragauge.assets import entries, pins
from ragauge.cost import shapes, tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.flop import parameters
from ragauge.cost.gpu import GPU
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import floor_seconds, model_bytes
from ragauge.cost.shape import Shape
from ragauge.datasets import Dataset
from ragauge.engines import Limits, ShapeLM
from ragauge.errors import UserError
from ragauge.evaluation import needs_retrieval
from ragauge.evaluation.costing import without_encoder
from ragauge.experiment import resources
from ragauge.experiment.dtypes import planned
from ragauge.experiment.plan import Plan
from ragauge.experiment.schema import Answers, Config, ModelEntry
from ragauge.generation.windows import NEIGHBOUR
from ragauge.methods import Method
from ragauge.prompts import Prompt

RECORD_BYTES = 3_000  # of one question's record, trace included
WEIGHT_BYTES = 2  # of a parameter of a checkpoint on a hub: all of the papers' are in half precision


@dataclass(frozen=True)
class JobFloor:
    """One job's floor. `seconds` is None if the model's shape is not known."""

    dataset: str
    model: str
    variant: str
    questions: int
    seconds: float | None
    kv_bytes: int  # the most keys and values held at one time


@dataclass(frozen=True)
class PipelineFloor:
    """One pipeline's floor. `seconds` is None if the model's shape or the number of texts is not known."""

    schedule: str
    task: str
    text: str  # label of the evaluation set, or of the database that text is held out of
    model: str
    sequences: int | None
    seconds: float | None
    kv_bytes: int  # of the sequence and its neighbours


def markdown(config: Config) -> str:
    """The experiment's needs as Markdown: models, data sets, jobs, databases, pipelines, and the sum."""
    jobs = [job_floor(config, job) for job in config.answers()]
    generations = [_generation(config, label) for label in config.pipelines]
    parts = [
        _models(config, jobs, generations),
        _datasets(config, jobs),
        _variants(config, jobs),
        *([_trainings(config)] if config.training else []),
        *([_databases(config)] if config.databases else []),
        *([_pipelines(generations)] if generations else []),
        _sum(config, jobs, generations),
    ]
    return "\n\n".join(parts) + "\n"


def shape_of(config: Config, model: str) -> Shape | None:
    """The shape of a configured model by its source's name; None if it is not known."""
    entry = config.models[model]
    name = config.training[entry.training].model if entry.training else entry.source
    return shapes.named(name) if name in shapes.names() else None


def _data(config: Config, label: str) -> type[Dataset]:
    """The class of a data set. Raises UserError if it does not state the length of a question."""
    name = config.datasets[label].dataset
    if _dataset(name).counts is None:
        known = [other for other in registry.usable("dataset") if _dataset(other).counts]
        raise UserError(f"datasets.{label}: the size of {name!r} is not known; known: {', '.join(known)}")
    return _dataset(name)


def mean_counts(config: Config, label: str) -> str:
    """The name of the token counts of a data set's mean question. Raises UserError if it does not state them."""
    return _counts(_data(config, label))


def _dataset(name: str) -> type[Dataset]:
    return cast(type[Dataset], registry.component("dataset", name, Dataset))


def _counts(data: type[Dataset]) -> str:
    assert data.counts is not None
    return data.counts


def _downloads(data: type[Dataset]) -> dict[str, float]:
    """Downloads of a data set, by name: GB."""
    if data.assets:
        return {name: _asset_gb(name) for name in data.assets}
    return dict([data.archive]) if data.archive else {}


def question_count(config: Config, label: str, limit: int | None) -> int:
    """How many questions of a data set are asked."""
    name = config.datasets[label].dataset
    whole = _dataset(name).questions
    if whole is None and limit is None:
        raise UserError(f"datasets.{label}: {name} does not state how many questions it has; set a limit")
    return min(n for n in (whole, limit) if n is not None)


def job_floor(config: Config, job: Answers) -> JobFloor:
    """The needs of a job; where a finder reads the document, its shape and context count."""
    reader = config.models[job.model].finder or job.model
    data, shape = _data(config, job.dataset), shape_of(config, reader)
    questions = question_count(config, job.dataset, config.limit(job))
    if shape is None:
        return JobFloor(*job, questions, None, 0)
    entry, model = config.methods[job.variant], config.models[reader]
    longest = config.datasets[job.dataset].options.get("max_length") or model.max_context or shape.max_context
    params = json.dumps(entry.params, sort_keys=True)  # hashable, whatever options hold
    new_tokens = config.max_new_tokens(job.dataset)
    seconds, kv = _question(entry.method, params, shape, _counts(data), longest, new_tokens, precision_of(model))
    return JobFloor(*job, questions, questions * seconds, kv)


def _generation(config: Config, label: str) -> PipelineFloor:
    entry = config.pipelines[label]
    model, text = config.pipeline_model(entry), entry.evaluation or config.pipeline_database(entry)
    shape = shapes.named(entry.reader.own_model) if entry.reader.own_model else shape_of(config, model)
    dtype = planned(config.models[model])
    seconds, kv = None, 0
    if shape is not None:
        kv = kv_bytes(shape, entry.tokens + entry.neighbours * NEIGHBOUR, dtype)
    if shape is not None and entry.limit is not None:
        seconds = entry.limit * needs_retrieval.pipeline_seconds(entry, shape, dtype, GPU)
    return PipelineFloor(entry.schedule, entry.task, text, model, entry.limit, seconds, kv)


def precision_of(model: ModelEntry) -> Precision:
    """How a model's numbers are computed and kept, `auto` as plans assume it."""
    return replace(model.precision, dtype=planned(model))


@cache
def _question(
    name: str,
    params: str,
    shape: Shape,
    counts: str,
    longest: int,
    new_tokens: int,
    precision: Precision,
) -> tuple[float, int]:
    """(floor in seconds, most bytes of keys and values) of one mean question, offline calls included."""
    prompt = mean_prompt(shape, counts, longest - new_tokens)
    engine = ShapeLM(shapes.with_context(shape, sum(map(len, prompt.documents)) + 4096), precision=precision)
    method = _projected(methods.make(name, **json.loads(params)), engine)
    with engine.tracing() as trace:
        method.answer(engine, method.prepare(engine, prompt), prompt, Limits(new_tokens, ignore_stop=True))
    return sum(floor_seconds(call, shape, precision, GPU) for call in trace), engine.peak_cache_bytes


def _projected(method: Method, engine: ShapeLM) -> Method:
    """The method, or, where it cannot run without weights (CFIC and its baselines), a plain prompt of the same text."""
    return without_encoder(method) if method.refusal(engine) is None else methods.make("naive")


def mean_prompt(shape: Shape, counts: str, longest: int) -> Prompt:
    """A prompt of random tokens; if it is too long for the context, its documents are cut to what fits."""
    lengths = tokens.load(counts, vocab=shape.vocab)
    if lengths.total > longest and len(lengths.documents) == 1:
        around = lengths.total - lengths.documents[0]
        lengths = replace(lengths, documents=(longest - around,))
    return Prompt(**tokens.random_segments(lengths, shape.vocab))


# --- tables ---


def _models(config: Config, jobs: Sequence[JobFloor], generations: Sequence[PipelineFloor]) -> str:
    rows = []
    for label, model in config.models.items():
        mine: list[JobFloor | PipelineFloor] = [job for job in jobs if job.model == label]
        mine += [one for one in generations if one.model == label]
        shape = shape_of(config, label)
        finder = shape_of(config, model.finder) if model.finder else None
        loaded = [one for one in (shape, finder) if one]
        weights = sum(map(parameters, loaded))
        memory = sum(model_bytes(one, precision_of(model)) for one in loaded)
        memory += max((job.kv_bytes for job in mine), default=0)
        rows.append(
            [
                f"`{label}`",
                f"training `{model.training}`" if model.training else f"`{_source(model.source)}`",
                f"{weights / 1e9:.2f}" if shape else "",
                "" if model.training else _gb(download_gb(config, label)),
                f"{memory / 1e9:.1f}" if shape else "",
                str(len(mine)),
                _hours(job.seconds for job in mine),
                f"{config.gpus(label)}, {model.resources.mem_mb // 1000} GB, {model.resources.runtime / 60:g} h",
            ]
        )
    head = ["model", "source", "10^9 parameters", "download GB", "memory GB", "jobs", "GPU hours", "asked of a job"]
    return "### Models\n\n" + _table(head, rows)


def _datasets(config: Config, jobs: Sequence[JobFloor]) -> str:
    rows = []
    for label, entry in config.datasets.items():
        data, mine = _data(config, label), [job for job in jobs if job.dataset == label]
        counts = tokens.load(_counts(data))
        longest = entry.options.get("max_length")
        rows.append(
            [
                f"`{label}`",
                f"{question_count(config, label, entry.limit):,}",
                f"{min(counts.total, longest or counts.total):,}",
                str(config.max_new_tokens(label)),
                ", ".join(_downloads(data)),
                str(len(mine)),
                _hours(job.seconds for job in mine),
            ]
        )
    head = ["data set", "questions", "prompt tokens", "new tokens", "download", "jobs", "GPU hours"]
    return "### Data sets\n\n" + _table(head, rows)


def _variants(config: Config, jobs: Sequence[JobFloor]) -> str:
    """Seconds a question and hours of all questions, a row a variant and kind of data set."""
    rows = []
    for name in config.methods:
        mine = [job for job in jobs if job.variant == name]
        if mine:
            known = [job for job in mine if job.seconds is not None]
            a_question = [job.seconds / job.questions for job in known if job.seconds is not None]
            span = f"{min(a_question):.2f} to {max(a_question):.2f}" if a_question else ""
            asked = f"{sum(job.questions for job in mine):,}"
            rows.append([f"`{name}`", str(len(mine)), asked, span, _hours(job.seconds for job in mine)])
    return "### Methods\n\n" + _table(["variant", "jobs", "questions", "seconds a question", "GPU hours"], rows)


def _trainings(config: Config) -> str:
    """Floors of GPU time, and what a job asks for."""
    rows = []
    for label, training in config.training.items():
        tokens_seen = training.steps * training.processes * training.accumulation * training.max_length / 1e9
        asked = [f"{resources.memory_mb(training) / 1e3:.0f}", f"{resources.minutes(training) / 60:.0f}"]
        hours = _hours([resources.gpu_seconds(training)])
        rows.append([f"`{label}`", f"`{training.model}`", str(training.processes), f"{tokens_seen:.2f}", hours, *asked])
    asked = ["memory GB asked of a job", "hours asked of a job"]
    return "### Training\n\n" + _table(["training", "model", "GPUs", "10^9 tokens at most", "GPU hours", *asked], rows)


def _databases(config: Config) -> str:
    rows = []
    for label, settings in config.databases.items():
        needs = needs_retrieval.database(settings)
        head = [f"`{label}`", ", ".join(f"`{source}`" for source in settings.sources)]
        if needs is None:  # its corpus is known when it is read
            rows.append([*head, *[""] * 7])
            continue
        sizes = (needs.download_gb, needs.chunks_gb, needs.embeddings_gb, needs.indexes_gb)
        counts = [f"{needs.documents:,}", f"{needs.chunks / 1e6:,.1f}"]
        rows.append([*head, *counts, *map(_gb, sizes), f"{needs.core_hours:,.0f}"])
    columns = [
        "database",
        "corpus",
        "documents",
        "10^6 chunks",
        "download GB",
        "chunks GB",
        "embeddings GB",
        "indexes GB",
    ]
    return "### Databases\n\n" + _table([*columns, "core hours of the encoder"], rows)


def _pipelines(generations: Sequence[PipelineFloor]) -> str:
    """A row a schedule, task and text."""
    rows = []
    for key in dict.fromkeys((g.text, g.task, g.schedule) for g in generations):
        mine = [g for g in generations if (g.text, g.task, g.schedule) == key]
        a_sequence = [g.seconds / g.sequences for g in mine if g.seconds is not None and g.sequences]
        span = f"{min(a_sequence):.2f} to {max(a_sequence):.2f}" if a_sequence else ""
        counts = "all" if any(g.sequences is None for g in mine) else f"{sum(g.sequences or 0 for g in mine):,}"
        names = [f"`{name}`" for name in key]
        rows.append([*names, str(len(mine)), counts, span, _hours(g.seconds for g in mine)])
    head = ["text", "task", "schedule", "pipelines", "sequences", "seconds a sequence", "GPU hours"]
    return "### Pipelines\n\n" + _table(head, rows)


def _sum(config: Config, jobs: Sequence[JobFloor], generations: Sequence[PipelineFloor]) -> str:
    models = sum(download_gb(config, label) for label, model in config.models.items() if not model.training)
    encoders = sum(_asset_gb(name) for name in _encoders(config))
    downloads = [_downloads(_data(config, label)) for label in config.datasets]
    data = sum({name: size for one in downloads for name, size in one.items()}.values())
    records = sum(job.questions for job in jobs) * RECORD_BYTES / 1e9
    kept = config.generation.documents_gb
    known = [needs for needs in map(needs_retrieval.database, config.databases.values()) if needs]
    corpora, databases = sum(needs.download_gb for needs in known), sum(needs.disk_gb for needs in known)
    disk = models + encoders + data + records + kept + databases
    return (
        "### Sum\n\n"
        + _table(
            ["", "GB"],
            [
                ["models", _gb(models)],
                ["text encoders", _gb(encoders)],
                ["data sets", _gb(data)],
                *([["corpora, which are streamed", _gb(corpora)]] if known else []),
                ["**downloads**", f"**{_gb(models + encoders + data + corpora)}**"],
                ["records", _gb(records)],
                ["documents' keys and values that are kept", _gb(kept)],
                *([["chunk databases and indexes", _gb(databases)]] if known else []),
                ["**disk**", f"**{_gb(disk)}**"],
            ],
        )
        + f"\n\n{len(jobs)} jobs of answers, {_hours(job.seconds for job in jobs)} GPU hours at the least."
        + _sum_of_pipelines(generations)
    )


def _sum_of_pipelines(generations: Sequence[PipelineFloor]) -> str:
    if not generations:
        return ""
    hours = _hours(g.seconds for g in generations)
    return f"\n{len(generations)} pipelines" + (
        f", {hours} GPU hours at the least besides searching." if hours else "."
    )


def download_gb(config: Config, label: str) -> float:
    """Of a model; 0 where it is not known."""
    source, shape = config.models[label].source, shape_of(config, label)
    if source in entries() and entries()[source].source.startswith("pypi:"):
        return _asset_gb(source)
    return WEIGHT_BYTES * parameters(shape) / 1e9 if shape else 0.0


def _asset_gb(name: str) -> float:
    entry = entries().get(name)
    return (entry.download_gb if entry else None) or 0.0


def _encoders(config: Config) -> set[str]:
    """The text encoders of the methods that answer, of the databases and of the comparisons of stale queries."""
    plan = Plan(config)
    ranking = {asset for name in {job.variant for job in config.answers()} for asset in plan.answers.assets(name)}
    return ranking | plan.retrieval.encoders()


def _source(source: str) -> str:
    return entries()[source].source if source in entries() else pins.bare(source)


def _hours(seconds: Iterable[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    return f"{sum(known) / 3600:.1f}" if known else ""


def _gb(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:,.1f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
