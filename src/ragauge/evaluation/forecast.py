"""How long an experiment will take on this machine, and the disk and memory that it needs.

The plan's jobs say what runs, the methods' own traces on the model's shape (as in `needs`) what each question computes,
and `speed` what a multiply-accumulate costs here, now. So a forecast holds for a machine that stays as busy as it was.
Every number is a span. Its likely value takes answers at half of their longest, its bounds at a tenth and at all of it,
times what was seen to vary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import torch

from ragauge import assets, methods
from ragauge.cost import machine as rates
from ragauge.cost import shapes
from ragauge.cost.roofline import model_bytes
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace
from ragauge.engines import Limits, ShapeLM
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UserError
from ragauge.evaluation import needs, needs_retrieval, speed
from ragauge.evaluation.costing import without_encoder
from ragauge.evaluation.inputs import Questions, specification
from ragauge.evaluation.runner import prompt_of
from ragauge.evaluation.speed import Expected, Machine, Speeds
from ragauge.experiment import resources
from ragauge.experiment.dtypes import with_dtype
from ragauge.experiment.plan import Plan
from ragauge.experiment.schema import Answers, Config
from ragauge.generation.cost import calls
from ragauge.methods import Method, make
from ragauge.methods.dense import Dense
from ragauge.prompts import Prompt
from ragauge.results.runs import Runs

SAMPLED = 3  # prompts of a data set whose questions are at hand
WRITTEN = (0.1, 0.5, 1.0)  # part of an answer's longest that is written
TOGETHER = (1.0, 1.15, 1.6)  # processes side by side share caches and memory: how much longer each takes
PROMPTS = 3  # that the latency protocol is divided over, as `ragauge time` does
# In starts of a process: Snakemake until its first job, a job beside its own work, an item, the page.
LAUNCH, JOB, ITEM, PAGE = 2.0, 0.3, 0.5, 1.0
AROUND = (0.5, 1.0, 2.0)  # how far these may be off
TRAINED = 3  # forward, and backward, which is twice that


@dataclass(frozen=True)
class ForecastSection:
    """A part of the experiment."""

    name: str
    jobs: int
    work: Expected  # seconds of its jobs' calls, one after another
    wall: Expected  # seconds that pass
    unknown: tuple[str, ...] = ()  # what of it is not forecast, and why


@dataclass(frozen=True)
class Forecast:
    """What an experiment will take."""

    sections: tuple[ForecastSection, ...]
    disk_gb: float
    memory_gb: float
    machine: Machine
    shape: Shape = field(repr=False)

    @property
    def wall(self) -> Expected:
        return sum((section.wall for section in self.sections), Expected())

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        sections = {s.name: {k: v for k, v in asdict(s).items() if k != "name"} for s in self.sections}
        sizes = {"disk_gb": self.disk_gb, "memory_gb": self.memory_gb}
        return {"wall_s": asdict(self.wall), "sections": sections, **sizes, "machine": self.machine.to_json()}


def measured(config: Config) -> Machine:
    """This machine's speeds for the experiment's first model whose shape is known.

    Raises:
        UserError: no model's shape is known before it is downloaded, or its device is not here.
    """
    label, shape = _first(config)
    model = with_dtype(config.models[label])
    if model.device == "cuda" and not torch.cuda.is_available():
        told = "'cuda' is not on this machine; `ragauge needs` has lower bounds that take none"
        raise UserError(f"models.{label}.device: {told}")
    precision = {"dtype": model.dtype, "weights": model.weights, "kv": model.kv}
    encoders = [name for name in _encoders(config) if assets.describe(name)["fetched"]]
    encoder = encoders[0] if encoders else None
    return speed.measure(shape, precision=precision, device=model.device, encoder=encoder, index=bool(config.databases))


def forecast(config: Config, machine: Machine) -> Forecast:
    """The experiment's wall time by section, its disk and its memory."""
    _, shape = _first(config)
    work = _Work(config, machine)
    parts = (work.start(), work.answers(), work.times(), work.retrieval(), work.pipelines(), work.training())
    sections = tuple(part for part in (*parts, work.items()) if part.jobs or part.unknown)
    return Forecast(sections, work.disk_gb(), work.memory_gb(), machine, shape)


def shape_of(config: Config, label: str) -> Shape | None:
    """The shape of a model, by its name or from its files, if they are here; nothing is fetched."""
    model = config.models[label]
    if known := needs.shape_of(config, label):
        return known
    source = config.training[model.training].model if model.training else model.source
    if model.served:
        return None
    try:
        found = assets.describe(source)
        return read_shape(Path(assets.resolve(source))) if found["fetched"] else None
    except UserError:
        return None


def took(config: Config, results: Path) -> dict[str, float]:
    """Seconds of calls that a run's records hold, by section: what a forecast's `work` is of."""
    runs = Runs(results, config)
    answers = [r for v in runs.run for r in v.records.values() if r["status"] == "ok" and r["online_s"] is not None]
    timed = [row["total_s"] for latency in runs.latencies for row in latency["rows"]]
    found = {"answers": sum((r["offline_s"] or 0.0) + r["online_s"] for r in answers), "times": sum(timed)}
    return {name: seconds for name, seconds in found.items() if seconds}


def _first(config: Config) -> tuple[str, Shape]:
    for label in config.models:
        if shape := shape_of(config, label):
            return label, shape
    raise UserError(f"models: no shape is known before a model is downloaded: {', '.join(config.models)}")


def _encoders(config: Config) -> list[str]:
    asked = {job.variant for job in config.answers()}
    ranking = [m.encoder for name in asked if isinstance(m := _method(config, name), Dense)]
    return sorted({*ranking, *(database.encoder for database in config.databases.values())})


def _method(config: Config, variant: str) -> Method:
    entry = config.methods[variant]
    return make(entry.method, **entry.params)


class _Work:
    """The seconds of an experiment's jobs."""

    def __init__(self, config: Config, machine: Machine) -> None:
        self.config, self.machine, self.plan = config, machine, Plan(config)
        self._prompts: dict[tuple[str, str], list[Prompt]] = {}
        self._kv = 0  # the most keys and values held at one time
        self._jobs = list(config.answers())
        self._shapes = {label: shape_of(config, label) for label in config.models}

    # --- sections ---

    def start(self) -> ForecastSection:
        """Snakemake, which reads the plan, and the first process of jobs."""
        wall = _about(LAUNCH * self.machine.start_s)
        return ForecastSection("start", 1, wall, wall)

    def answers(self) -> ForecastSection:
        """Every question under every variant, as many jobs at a time as there are cores."""
        work, unknown = Expected(), dict[str, None]()
        for job in self._jobs:
            try:
                work += self._question(job) * self._count(job)
            except UserError as error:
                unknown[f"{job.dataset}, {job.model}: {error}"] = None
        together = min(self.machine.cores, len(self._jobs)) or 1
        side = work.within(*TOGETHER) if together > 1 else work
        wall = side * (1 / together) + _about(JOB * self.machine.start_s * len(self._jobs) / together)
        return ForecastSection("answers", len(self._jobs), work, wall if self._jobs else Expected(), tuple(unknown))

    def times(self) -> ForecastSection:
        """The machine's rates, and the protocols of latency, load and streams, alone on the machine."""
        work, unknown, jobs = Expected(), list[str](), 0
        retried = Expected()
        for dataset, model in self.config.timed():
            protocol = self.config.protocol(dataset)
            assert protocol is not None
            jobs += 1
            try:
                for name in protocol.methods:
                    offline, online = self._timed(Answers(dataset, model, name), protocol.new_tokens)
                    prompts = min(PROMPTS, protocol.trials)
                    trials = online * protocol.trials
                    work += offline * prompts + online * (protocol.warmup or 1) * prompts + trials
                    retried += Expected(0, 0, trials.high + protocol.trials * rates.PAUSE_S)
            except UserError as error:
                unknown.append(f"latency of {dataset}, {model}: {error}")
        for section, pairs in (("load", self.config.loaded()), ("stream", self.config.streamed())):
            unknown += [f"{section} of {dataset}, {model}: takes what its rates say" for dataset, model in pairs]
        measuring = Expected(4, 8, 8 * rates.ATTEMPTS) if jobs else Expected()  # `cost.machine.measure`
        wall = work + retried + measuring + _about(2 * JOB * self.machine.start_s * jobs)
        return ForecastSection("times", jobs, work, wall, tuple(unknown))

    def retrieval(self) -> ForecastSection:
        """Chunk databases: embedding and indexing."""
        work, unknown = Expected(), list[str]()
        for label, settings in self.config.databases.items():
            found = needs_retrieval.database(settings)
            if found is None:
                unknown.append(f"{label}: its corpus is known when it is read")
                continue
            encode_s = self.machine.encode_s or 1 / needs_retrieval.CHUNKS_PER_S
            each = encode_s + len(settings.indexes) * (self.machine.index_s or 0.0)
            work += _about(found.chunks * each)
        jobs = len(self.config.databases)
        return ForecastSection("retrieval", jobs, work, work * (1 / self.machine.cores), tuple(unknown))

    def pipelines(self) -> ForecastSection:
        """Generation with retrieval, alone on the machine; what searching adds is in the upper bound alone."""
        work, unknown = Expected(), list[str]()
        for label, entry in self.config.pipelines.items():
            model = self.config.pipeline_model(entry)
            shape = shapes.named(entry.reader.own_model) if entry.reader.own_model else self._shapes[model]
            if shape is None or entry.limit is None:
                unknown.append(f"{label}: {'no limit' if shape else f'the shape of {model} is not known'}")
                continue
            a_pass = sum((self.machine.all.seconds(call, shape) for call in calls(entry)), Expected())
            work += (a_pass * (entry.limit * needs_retrieval.passes(entry))).within(0.7, 1.1, 2.0)
        jobs = len(self.config.pipelines)
        return ForecastSection(
            "pipelines", jobs, work, work + _about(JOB * self.machine.start_s * jobs), tuple(unknown)
        )

    def training(self) -> ForecastSection:
        """Fine-tunings on this machine's processor, documents at their longest in the upper bound."""
        work, unknown = Expected(), list[str]()
        for label, entry in self.config.training.items():
            if entry.device != "cpu" or entry.model not in shapes.names():
                unknown.append(f"{label}: {'on a GPU' if entry.device != 'cpu' else 'its shape is not known'}")
                continue
            documents = entry.steps * entry.processes * entry.accumulation
            length = (entry.max_length,)
            read = self.machine.all.seconds(Call("train", length, (0,), logits=length), shapes.named(entry.model))
            passes = TRAINED + int(entry.gradient_checkpointing)
            work += (read * (documents * passes)).within(0.3, 0.8, 1.5)
        return ForecastSection("training", len(self.config.training), work, work, tuple(unknown))

    def items(self) -> ForecastSection:
        """Tables, figures and the page."""
        count = len(self.config.item_names())
        wall = _about((ITEM * ceil(count / self.machine.cores) + PAGE) * self.machine.start_s)
        return ForecastSection("items", count + 1, wall, wall)

    def memory_gb(self) -> float:
        """Of all jobs side by side, at the most."""
        pairs = zip(self._shapes.values(), self.config.models.values(), strict=True)
        largest = max((model_bytes(s, needs.precision_of(m)) for s, m in pairs if s), default=0)
        trained = max((resources.memory_mb(t) / 1e3 for t in self.config.training.values()), default=0.0)
        together = min(self.machine.cores, max(1, len(self._jobs)))
        libraries = min(self.machine.process_bytes, 1.5e9)
        return max(trained, together * (libraries + largest + self._kv) / 1e9)

    def disk_gb(self) -> float:
        """Records, models that are still to be downloaded, kept documents, databases with their indexes."""
        stored = [found for found in map(needs_retrieval.database, self.config.databases.values()) if found]
        models = [(label, m) for label, m in self.config.models.items() if not (m.training or m.served)]
        missing = [label for label, model in models if not assets.describe(model.source)["fetched"]]
        records = sum(self._known_count(job) for job in self._jobs) * needs.RECORD_BYTES / 1e9
        downloads = sum(needs.download_gb(self.config, label) for label in missing)
        return records + downloads + self.config.generation.documents_gb + sum(found.disk_gb for found in stored)

    # --- questions ---

    def _known_count(self, job: Answers) -> int:
        try:
            return self._count(job)
        except UserError:
            return 0

    def _count(self, job: Answers) -> int:
        entry = self.config.datasets[job.dataset]
        limit = self.config.limit(job)
        if entry.data and Path(entry.data).is_file():
            whole = sum(1 for line in Path(entry.data).read_bytes().split(b"\n") if line.strip())
            return min(limit or whole, whole)
        return needs.question_count(self.config, job.dataset, limit)

    def _question(self, job: Answers) -> Expected:
        """Of one question, what could be prepared before included."""
        longest = self.config.max_new_tokens(job.dataset)
        found = Expected()
        for trace, encoded in self._traces(job, longest):
            low, likely, high = (_priced(trace, self.machine.one, self._shape(job.model), part) for part in WRITTEN)
            found += Expected(low.low, likely.likely, high.high) + _about(encoded * (self.machine.encode_s or 0.0))
        return found * (1 / len(self._of(job)))

    def _timed(self, job: Answers, new_tokens: int) -> tuple[Expected, Expected]:
        """(what is prepared, what is timed) of one answer."""
        offline, online = Expected(), Expected()
        shape, speeds = self._shape(job.model), self.machine.all
        for trace, encoded in self._traces(job, new_tokens):
            offline += _priced([c for c in trace if c.offline], speeds, shape, 1)
            online += _priced([c for c in trace if not c.offline], speeds, shape, 1)
            online += _about(encoded * (self.machine.encode_s or 0.0))
        count = len(self._of(job))
        return offline * (1 / count), online * (1 / count)

    def _traces(self, job: Answers, new_tokens: int) -> Iterator[tuple[Trace, int]]:
        """The calls of each sampled question on the model's shape, and the texts that an encoder reads."""
        shape, method = self._shape(job.model), _method(self.config, job.variant)
        for prompt in self._of(job):
            room = shapes.with_context(shape, sum(map(len, prompt.documents)) + 4096)
            engine = ShapeLM(room, precision=needs.precision_of(self.config.models[job.model]))
            able = without_encoder(method) if method.refusal(engine) is None else methods.make("naive")
            with engine.tracing() as trace:
                able.answer(engine, able.prepare(engine, prompt), prompt, Limits(new_tokens, ignore_stop=True))
            self._kv = max(self._kv, engine.peak_cache_bytes)
            yield trace, len(prompt.documents) + 1 if isinstance(method, Dense) else 0

    def _shape(self, model: str) -> Shape:
        reader = self.config.models[model].finder or model
        if (shape := self._shapes[reader]) is None:
            raise UserError("the shape of the model is not known before it is downloaded")
        return shape

    def _of(self, job: Answers) -> list[Prompt]:
        """Prompts of the data set: some of its own, else one of its mean lengths."""
        place = (job.dataset, job.model)
        if place not in self._prompts:
            self._prompts[place] = list(_prompts(self.config, job, self._shape(job.model)))
        return self._prompts[place]


def _priced(trace: Sequence[Call], speeds: Speeds, shape: Shape, share: float) -> Expected:
    """The seconds of calls, of which decoding takes a share of its steps."""
    shares = ((call, share if call.stage == "decode" else 1.0) for call in trace if call.macs is None)
    return sum((speeds.seconds(call, shape, part) for call, part in shares), Expected())


def _prompts(config: Config, job: Answers, shape: Shape) -> Iterator[Prompt]:
    entry, model = config.datasets[job.dataset], config.models[job.model]
    if entry.data and Path(entry.data).is_file() and not (model.served or model.training):
        yield from _own_prompts(config, job)
        return
    counts = needs.mean_counts(config, job.dataset)
    longest = entry.options.get("max_length") or model.max_context or shape.max_context
    yield needs.mean_prompt(shape, counts, longest - config.max_new_tokens(job.dataset))


def _own_prompts(config: Config, job: Answers) -> Iterator[Prompt]:
    """Prompts of a data set whose file is at hand, by the tokenizer of the model."""
    from ragauge.assets.tokenizer import load_tokenizer

    entry, model = config.datasets[job.dataset], config.models[job.model]
    options = {"seed": config.dataset_seed(job.dataset), **entry.options}
    asked = Questions(entry.dataset, options, Path(str(entry.data)))
    made = specification("naive", make("naive"), asked, with_dtype(model), config.max_new_tokens(job.dataset))
    examples = asked.examples(config.limit(job))
    tokenizer = load_tokenizer(assets.resolve(model.source))
    for place in range(min(SAMPLED, len(examples))):
        yield prompt_of(examples[place * len(examples) // SAMPLED], made, tokenizer)


def _about(seconds: float) -> Expected:
    low, likely, high = AROUND
    return Expected(low * seconds, likely * seconds, high * seconds)
