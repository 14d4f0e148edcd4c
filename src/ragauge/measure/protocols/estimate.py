"""An estimate of a run: seconds of timed questions, multiplied by the questions that are left.

A variant that an earlier run answered has the seconds of its records; of every other one some
questions are answered here, and not recorded. What can neither be read nor timed is named, and
never counted as zero.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragauge.assets import resolver
from ragauge.assets.catalog import entries
from ragauge.config.dtypes import with_dtype
from ragauge.config.experiment import AnswerJob, Config
from ragauge.config.model import ModelEntry
from ragauge.config.plan.part import RunPaths
from ragauge.config.plan.plan import Plan
from ragauge.config.run_progress import duration, line_count
from ragauge.cost import shapes
from ragauge.cost.flop import parameters
from ragauge.errors import UserError
from ragauge.io import progress, records
from ragauge.methods.base.states import effective_state

if TYPE_CHECKING:
    from ragauge.datasets.base.dataset import Example
    from ragauge.io.records import Record
    from ragauge.measure.inputs import QuestionSource

MAX_QUESTIONS = 3  # that are timed of a variant, as long as they take less than these seconds
MAX_VARIANT_S = 1.0
TRIAL_PROMPTS = 3  # over which `ragauge time` divides the trials of its protocol
SIDE_BY_SIDE = 1.15  # how much longer an answer takes while other cores answer too
SPREAD = 1 / 3  # part by which an estimate may be off, where timed questions vary less
CHECKPOINT_BYTES = 2  # of a parameter of a checkpoint on a hub: most are in half precision
NOT_ESTIMATED = ("load", "stream", "judge", "training", "databases", "pipelines")


class Work(NamedTuple):
    """The answers of a variant or, with a response length, its timed trials."""

    job: AnswerJob
    new_tokens: int | None = None


@dataclass(frozen=True)
class Span:
    """Seconds: the least, the likely and the most that are expected."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    @classmethod
    def of_samples(cls, seconds: Sequence[float]) -> Span:
        """Return the mean of measured seconds, and bounds at their extremes or a third from it."""
        mean = statistics.mean(seconds)
        return cls(min(*seconds, (1 - SPREAD) * mean), mean, max(*seconds, (1 + SPREAD) * mean))

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, factor: float) -> Span:
        return Span(factor * self.low, factor * self.likely, factor * self.high)

    def __str__(self) -> str:
        return f"about {duration(self.likely)} ({duration(self.low)} to {duration(self.high)})"


@dataclass
class Rates:
    """Measured seconds of an experiment's work, from which the rest is estimated.

    Attributes:
        seconds: of each timed question of a variant: (preparing its documents, answering it).
        counts: questions of each data set that is on this machine.
        unknown: why other work has no seconds.
    """

    seconds: dict[Work, list[tuple[float, float]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    unknown: dict[Work, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    sections: dict[str, Span]
    not_estimated: list[str]
    downloads_gb: dict[str, float | None]  # of assets that are not here; None: of unknown size

    @property
    def wall(self) -> Span:
        return sum(self.sections.values(), Span())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wall_s": asdict(self.wall)}

    def lines(self) -> Iterator[str]:
        for name, span in self.sections.items():
            yield f"{name}: {span}"
        for reason in self.not_estimated:
            yield f"not estimated: {reason}"
        for name, gigabytes in self.downloads_gb.items():
            yield f"to download: {name}" + (f", {gigabytes:,.2f} GB" if gigabytes else "")


def measure(config: Config, within_s: float = 120.0) -> Rates:
    """Time some questions of each variant, and one trial of each variant of the latency protocol.

    Nothing is downloaded or recorded. Variants that have records are not timed again.

    Args:
        config: the experiment.
        within_s: seconds after which nothing further is timed.
    """
    rates = recorded(config)
    bench = _Bench(config)
    deadline = time.monotonic() + within_s
    pending = [work for work in _work(config) if work not in rates.seconds]
    for work in progress.bar("timing questions", "variant", iterable=pending, delay=2):
        try:
            if time.monotonic() > deadline:
                raise UserError("not timed, as the time for it was over")
            rates.seconds[work] = list(bench.time(*work))
        except UserError as error:
            rates.unknown[work] = str(error)
    rates.counts |= {label: len(examples) for label, examples in bench.examples.items()}
    return rates


def recorded(config: Config) -> Rates:
    """Read the seconds of an experiment's questions in the records of its earlier runs."""
    rates = Rates()
    for label in config.datasets:
        rates.counts[label] = line_count(Path(RunPaths(config.run).data.format(dataset=label)))
    for job in config.answers():
        with suppress(UserError):
            path = Path(RunPaths(config.run).records(job))
            seconds = list(map(_seconds, records.read(path)))
            rates.seconds |= {Work(job): seconds} if seconds else {}
    return rates


def estimate(config: Config, rates: Rates, cores: int | None = None) -> Estimate:
    """Multiply the seconds of questions and trials by how many of them are left.

    Args:
        config: the experiment, or a part of it with other limits.
        rates: the seconds that are known of it.
        cores: that answer side by side; None: all of this machine.
    """
    answers = Span()
    times = Span()
    missing = Counter[str]()
    for work in _work(config):
        seconds = rates.seconds.get(work)
        count = rates.counts[work.job.dataset]
        if not seconds or not count:
            missing[rates.unknown.get(work, "no records")] += 1
        elif work.new_tokens:
            times += _times(config, work, *seconds[0])
        else:
            left = _questions_left(config, work.job, count)
            answers += Span.of_samples([sum(question) for question in seconds]) * left
            if _is_timed_at_median(config, work.job):  # of answers as long as these
                times += _times(config, work, *seconds[0])
    at_once = min(cores or os.cpu_count() or 1, len(list(config.answers())))
    if at_once > 1:
        answers *= SIDE_BY_SIDE / at_once
    sections = {"answers": answers, "times": times}
    unknown = [
        f"{count} {'variant' if count == 1 else 'variants'}: {reason}"
        for reason, count in missing.items()
    ]
    others = [name for name in NOT_ESTIMATED if getattr(config, name)]
    return Estimate(
        {name: span for name, span in sections.items() if span.likely},
        [*unknown, ", ".join([*others, "items"])],
        _downloads_gb(config),
    )


def announce(config: Config, jobs: int, cores: int) -> None:
    """Print what a run that begins does, and how long, if earlier runs recorded some answers."""
    progress.line(f"{jobs} jobs of this experiment:\n{config.overview()}")
    for name, span in estimate(config, recorded(config), cores).sections.items():
        progress.line(f"{name}: {span}, by the records of earlier runs")


class _Bench:
    """The models and questions of an experiment that are on this machine."""

    def __init__(self, config: Config) -> None:
        from ragauge.measure.engines import Engines

        self.config = config
        self.examples = {label: self._examples(label) for label in config.datasets}
        models = config.models.items()
        self.engines = {label: Engines(threads=1, served=entry.served) for label, entry in models}
        self.is_warm = set[str]()
        self._models = dict[str, ModelEntry]()

    def time(self, job: AnswerJob, new_tokens: int | None) -> Iterator[tuple[float, float]]:
        """Answer the first questions of a job as it does, or one as the latency protocol does.

        Yields:
            Seconds of preparing the documents, and of answering.

        Raises:
            UserError: something is not on this machine yet, or a question fails.
        """
        import torch

        from ragauge.measure import inputs
        from ragauge.measure.answering import ask

        self._check_assets(job)
        config = self.config
        method = config.method(job)
        specification = inputs.specification(
            method,
            self._questions(job.dataset),
            self._model(job.model),
            new_tokens or config.max_new_tokens(job.dataset),
        )
        engine = self.engines[job.model].ready(specification, method)
        examples = self.examples[job.dataset][: 1 if new_tokens else MAX_QUESTIONS]
        if job.model not in self.is_warm:  # the first answer of a model sets up its kernels
            self.is_warm.add(job.model)
            ask(engine, method, examples[0], specification)
        protocol = config.protocol(job.dataset)
        threads = (protocol and protocol.threads) or os.cpu_count() or 1
        spent_s = 0.0
        for example in examples:
            torch.set_num_threads(threads if new_tokens else 1)
            record = ask(engine, method, example, specification)
            torch.set_num_threads(1)
            yield _seconds(record)
            spent_s += sum(_seconds(record))
            if spent_s > MAX_VARIANT_S:
                return

    def _model(self, label: str) -> ModelEntry:
        """The model with its data type and its template, which are found out and said once."""
        from ragauge.measure.inputs import facts

        if label not in self._models:
            model = with_dtype(self.config.models[label])
            template = {"template": facts(model)["template"]}
            self._models[label] = model.model_copy(update=template)
        return self._models[label]

    def _questions(self, label: str) -> QuestionSource:
        from ragauge.measure.inputs import QuestionSource

        entry = self.config.datasets[label]
        options = {"seed": self.config.dataset_seed(label), **entry.options}
        written = Path(RunPaths(self.config.run).data.format(dataset=label))
        return QuestionSource(
            entry.dataset,
            options,
            Path(entry.data) if entry.data else None,
            written if written.is_file() else None,
            skip=entry.skip,
        )

    def _examples(self, label: str) -> list[Example]:
        """Read the questions of a data set; none if they are not on this machine."""
        questions = self._questions(label)
        assets = questions.dataset.assets
        has_assets = bool(assets) and all(resolver.describe(name)["fetched"] for name in assets)
        has_file = questions.official.is_file() if questions.official else has_assets
        return questions.examples() if questions.written or has_file else []

    def _check_assets(self, job: AnswerJob) -> None:
        model = self.config.models[job.model]
        if model.training or model.finder:
            raise UserError("models that the run trains, or with a finder, are not timed")
        if not self.examples[job.dataset]:
            raise UserError(f"the questions of {job.dataset} are not on this machine yet")
        sources = [] if model.served else [model.source]
        for source in [*sources, *self.config.method(job).local_assets()]:
            if not resolver.describe(source)["fetched"]:
                raise UserError(f"{source} is not on this machine yet")


def _seconds(record: Record) -> tuple[float, float]:
    """Seconds of preparing a question's documents, and of answering it.

    Raises UserError: it failed, or was answered together with others.
    """
    if record.online_s is None:
        reason = record.reason or "answered together with others"
        raise UserError(f"question {record.key} has no seconds: {reason}")
    return record.offline_s or 0.0, record.online_s


def _work(config: Config) -> Iterator[Work]:
    yield from map(Work, config.answers())
    for dataset, model in config.measured("latency"):
        protocol = config.protocol(dataset)
        assert protocol is not None
        for name in protocol.methods:
            for new_tokens in protocol.all_new_tokens:
                yield Work(AnswerJob(dataset, model, name), new_tokens)


def _is_timed_at_median(config: Config, job: AnswerJob) -> bool:
    protocol = config.protocol(job.dataset)
    if protocol is None or protocol.answer_tokens != "median":
        return False
    return job.variant in protocol.methods and job[:2] in config.measured("latency")


def _questions_left(config: Config, job: AnswerJob, count: int) -> int:
    path = Path(RunPaths(config.run).records(job))
    answered = line_count(path) or max(line_count(records.partial_path(path)) - 1, 0)
    return max(min(count, config.limit(job) or count) - answered, 0)


def _times(config: Config, work: Work, offline_s: float, online_s: float) -> Span:
    """Seconds of the trials of a variant under the latency protocol, in all of its states. Prompts
    are prepared for the first length of a response, and have been for the others.

    A plain prompt whose beginning is cached is read once a prompt, and its trials count nothing.
    """
    protocol = config.protocol(work.job.dataset)
    assert protocol is not None
    method = config.method(work.job)
    prompts = min(TRIAL_PROMPTS, protocol.trials)
    prepared = prompts if work.new_tokens == protocol.new_tokens else 0
    trials = protocol.warmup * prompts + protocol.trials
    total = 0.0
    usable = method.usable_state()
    for state in {effective_state(usable, state) for state in protocol.timed_states}:
        if state == "nothing":
            total += trials * (offline_s + online_s)
        elif method.prepares:
            total += prepared * offline_s + trials * online_s
        else:
            total += prepared * online_s
    return Span.of_samples([total])


def _downloads_gb(config: Config) -> dict[str, float | None]:
    downloads = {}
    for source in Plan(config).assets:
        if not resolver.describe(source)["fetched"]:
            entry = entries().get(source)
            shape = shapes.named(source) if source in shapes.names() else None
            size = CHECKPOINT_BYTES * parameters(shape) / 1e9 if shape else None
            downloads[source] = (entry.download_gb if entry else None) or size
    return downloads
