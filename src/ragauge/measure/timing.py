"""Shared parts of the protocols of `ragauge time`, `load` and `stream`: a decoder with prompts, and
a quiet machine.
"""

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch

from ragauge.config.experiment import AnswerJob, Config
from ragauge.config.model import ModelEntry
from ragauge.config.plan.part import RunPaths
from ragauge.config.protocols import LoadSettings, TimedSettings
from ragauge.cost import shapes
from ragauge.cost import tokens as lengths
from ragauge.cost.machine import MAX_LOAD, Load, competing_load, provenance
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Trace
from ragauge.datasets.base.dataset import TraceEntry
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm, random_lm
from ragauge.engines.protocol import Engine, Limits
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.jsonl import JsonObject
from ragauge.measure.engines import Engines
from ragauge.measure.gpu_load import GpuWatch, watch
from ragauge.measure.inputs import QuestionSource, specification
from ragauge.measure.prompting import prompt_of
from ragauge.methods.base.making import make
from ragauge.methods.base.method import Answer, Method
from ragauge.methods.prompts import Prompt, corpus_spacing
from ragauge.methods.prompts.templates import set_template_arguments
from ragauge.results.times import ProtocolFacts, Watched

ATTEMPTS = 2  # of what is watched as one, such as a level of load
Worked = TypeVar("Worked")
AnyEngine = TypeVar("AnyEngine", bound=Engine)


@dataclass(frozen=True)
class AnyBench(ABC, Generic[AnyEngine]):
    """An engine and the prompts that every method answers on it."""

    engine: AnyEngine
    prompts: Sequence[Prompt]
    dataset: str = "random tokens"  # where the prompts come from
    trace: Sequence[TraceEntry] = ()  # of the prompts, where they are replayed

    def supported(self, variants: Mapping[str, Method]) -> tuple[dict[str, Method], dict[str, str]]:
        """The variants that run on the engine, adapted to it, and the reasons why the others do not."""
        able = self.engine.capabilities
        adapted = {name: method.adapted_to(able) for name, method in variants.items()}
        reasons = {name: method.refusal(self.engine) for name, method in adapted.items()}
        unsupported = {name: reason for name, reason in reasons.items() if reason}
        return {name: m for name, m in adapted.items() if not reasons[name]}, unsupported

    def result(
        self, settings: TimedSettings, seed: int, unsupported: Mapping[str, str], **more: Any
    ) -> JsonObject:
        """The part of a result that every kind of measurement has; `more`: of its protocol."""
        protocol = {
            **settings.model_dump(exclude={"methods", "models"}),
            "dataset": self.dataset,
            "seed": seed,
            "prompts": len(self.prompts),
            **self.facts(settings),
            **more,
        }
        return {
            "provenance": self.provenance(),
            "protocol": ProtocolFacts(**protocol),
            "unsupported": unsupported,
        }

    @abstractmethod
    def facts(self, settings: TimedSettings) -> JsonObject:
        """How the engine runs."""

    def provenance(self) -> JsonObject:
        return provenance()


@dataclass(frozen=True)
class Bench(AnyBench[LM]):
    """A decoder on this machine with the prompts."""

    batch: Sequence[Prompt] = ()  # those for which evidence is searched side by side

    def facts(self, settings: TimedSettings) -> JsonObject:
        return {
            "threads": torch.get_num_threads(),
            **asdict(self.engine.precision),
            "device": self.engine.device.type,
            "tokens": self.prompts[0].token_counts(),
            "allowed_load": MAX_LOAD,
        }


def bench_of_questions(
    questions: QuestionSource,
    count: int,
    model: ModelEntry,
    new_tokens: int,
    threads: int | None,
    batch: int = 0,
    finder: ModelEntry | None = None,
) -> Bench:
    """A model with the prompts of the first `count` questions, which are the same for all methods.
    `batch` is the number of prompts of the bench's `batch`, the first questions in turn where there
    are fewer. `finder` is the model that searches or chooses for it; None: itself.
    """
    common = specification(make("naive"), questions, model, new_tokens, finder)
    lm = cast(LM, Engines(threads).pair(common))
    prompts = prompts_of(questions, max(count, batch), model, lm, new_tokens)
    return Bench(lm, prompts[:count], questions.name, batch=list(islice(cycle(prompts), batch)))


def prompts_of(
    questions: QuestionSource, count: int, model: ModelEntry, engine: Engine, new_tokens: int
) -> list[Prompt]:
    common = specification(make("naive"), questions, model, new_tokens)
    set_template_arguments(engine.tokenizer, common.template_arguments, common.template_date)
    return with_corpus(
        prompt_of(example, common, engine.tokenizer, engine.max_context)
        for example in questions.examples(count)
    )


def with_corpus(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return prompts that know the spacing of their corpus, whose documents are all of theirs."""
    known = list(prompts)
    spacing = corpus_spacing(known)
    return [replace(prompt, corpus_spacing=spacing) for prompt in known]


def trace_of(
    questions: QuestionSource, prompts: Sequence[Prompt], max_context: int, settings: LoadSettings
) -> list[TraceEntry]:
    """How a trace sends the prompts of its first questions.

    Raises:
        UserError: the data set is no trace, a prompt and its response are beyond the model's
            context, or there is no request after the warm-up.
    """
    examples = questions.examples(len(prompts))
    trace = [example.trace for example in examples if example.trace]
    if len(trace) < len(examples):
        raise UserError(
            "speeds: "
            f"data set {questions.name!r} has no arrival times; choose rates or clients, or data set 'trace'"
        )
    warmup = settings.requests_of_level - settings.requests
    if len(trace) <= warmup:
        raise UserError(f"warmup: {warmup}, but {questions.path} has {len(trace)} requests in all")
    for example, entry, prompt in zip(examples, trace, prompts, strict=True):
        new_tokens = entry.new_tokens or settings.new_tokens
        if prompt.total_tokens + new_tokens > max_context:
            raise UserError(
                f"{questions.path}:{example.key}: "
                f"{prompt.total_tokens} tokens of prompt and {new_tokens} of response"
                f" exceed the context of {max_context} tokens"
            )
    return trace


def bench_of_random_tokens(
    counts: str, dataset: str, model: ModelEntry, threads: int | None
) -> Bench:
    """A model with a prompt of random tokens, whose lengths `counts` names (`cost.tokens.load`)."""
    lm = load_lm(
        model.source,
        device=model.device,
        threads=threads,
        max_context=model.max_context,
        **asdict(model.precision),
    )
    return Bench(lm, [random_prompt(lm.shape, counts)], dataset)


def bench_of_shape(counts: str, model: ModelEntry, new_tokens: int, threads: int | None) -> Bench:
    """Random weights of the model's shape, with a prompt of random tokens, as in the papers'
    released script.
    """
    shape, prompt = shape_and_prompt(model.source, counts, new_tokens)
    lm = random_lm(shape, device=model.device, threads=threads, **asdict(model.precision))
    return Bench(lm, [prompt], f"{counts} lengths")


def shape_of(model: str) -> Shape:
    """The shape of a known model or a local checkpoint; otherwise UserError naming the choices."""
    return read_shape(Path(model)) if Path(model).is_dir() else shapes.named(model)


def shape_and_prompt(model: str, counts: str, new_tokens: int) -> tuple[Shape, Prompt]:
    """The model's shape, its context extended if needed, and a prompt of random tokens with the
    named lengths.
    """
    shape = shape_of(model)
    prompt = random_prompt(shape, counts)
    return shapes.with_context(shape, prompt.total_tokens + new_tokens), prompt


def random_prompt(shape: Shape, counts: str) -> Prompt:
    counted = lengths.load(counts, vocab=shape.vocab)
    return with_corpus([Prompt(**lengths.random_segments(counted, shape.vocab))])[0]


def median_answer(config: Config, dataset: str, model: str, variants: Sequence[str]) -> int | None:
    """The median number of tokens in the recorded answers of some variants; None: no records."""
    lengths = list[int]()
    for name in variants:
        path = Path(RunPaths(config.run).records(AnswerJob(dataset, model, name)))
        answers = records.read(path) if path.is_file() else ()
        lengths += [answer.tokens["generated"] for answer in answers if not answer.reason]
    return round(statistics.median(lengths)) if lengths else None


def fixed_length(new_tokens: int) -> Limits:
    return Limits(max_new_tokens=new_tokens, ignore_stop=True)


def check_length(answer: Answer, limits: Limits, lm: LM, name: str) -> None:
    """Raise UserError if the context ended a response before its last token."""
    if len(answer.ids) != limits.max_new_tokens:
        raise UserError(
            f"{name}: the model's context of {lm.shape.max_context} tokens ends the response "
            f"after {len(answer.ids)} of {limits.max_new_tokens} tokens"
        )


class Clocked(NamedTuple, Generic[Worked]):
    """A work's result, the moments between which it was done, and the calls that it made."""

    result: Worked
    start_s: float
    end_s: float
    trace: Trace

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def clocked(lm: LM, work: Callable[[], Worked]) -> Clocked[Worked]:
    """Do a work on a device that is idle before it and after it."""
    lm.synchronize()
    with lm.tracing() as trace:
        start = time.perf_counter()
        result = work()
        lm.synchronize()
        return Clocked(result, start, time.perf_counter(), list(trace))


def disturbance(load: Load, gpu: GpuWatch) -> str | None:
    """Say what disturbed times, so that they are not to be published; None if CPU and GPU were quiet
    enough.
    """
    if load.share > MAX_LOAD:
        return f"other processes took {load.share:.1%} of the machine's CPU time (quiet: up to {MAX_LOAD:.0%})"
    return gpu.refusal()


def watched(lm: LM, allow_load: bool, work: Callable[[], Worked]) -> tuple[Worked, Watched]:
    """Do a work while other processes and the GPU are watched; once more if they disturbed it: the
    quieter one counts.

    Returns: its result, and what was seen; `refused` is what disturbed it where load is not
        allowed.
    """
    attempts = []
    for _ in range(ATTEMPTS):
        gpu = watch(str(lm.device))
        gc.collect()
        gpu.look()
        with competing_load() as load:
            worked = work()
        gpu.look()
        busy = disturbance(load, gpu)
        seen = Watched(
            load_share=load.share,
            gpu=gpu.state(),
            busy=busy,
            refused=None if allow_load else busy,
        )
        attempts.append((worked, seen))
        if busy is None:
            break
    return min(attempts, key=lambda attempt: (attempt[1].busy is not None, attempt[1].load_share))
