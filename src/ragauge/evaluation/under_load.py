"""Methods under load: requests on a data set's questions, answered by the decoder as `cost.load` sends them."""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import torch

from ragauge.cost import load
from ragauge.cost.gpu_load import watch
from ragauge.cost.load import Level, OneByOne, Request, SteppingServer, Targets, TimedRequest, WallClock
from ragauge.cost.settings import LoadSettings
from ragauge.engines import LM, Limits, SpanEngine, load_lm
from ragauge.engines.batching import Batch, Seat, Task, fitting
from ragauge.errors import UserError
from ragauge.evaluation.inputs import Questions, specification
from ragauge.evaluation.runner import prompt_of
from ragauge.experiment.schema import ModelEntry
from ragauge.io.progress import bar
from ragauge.methods import Method, make
from ragauge.prompts import Prompt

CACHE_STATES = {
    "ready": "what a method prepares before the question is known is in memory when a request arrives",
    "computed": "what a method prepares is computed within each request, as for documents that nobody has read yet",
}


def load_model(
    variants: Mapping[str, Method],
    questions: Questions,
    model: ModelEntry,
    settings: LoadSettings,
    *,
    seed: int = 0,
    allow_load: bool = False,
) -> dict[str, Any]:
    """The load protocol on the first questions of a data set, one variant after another.

    Args:
        variants: by name; those that the model cannot run are left out with the reason.
        seed: of the arrivals, which are the same for all variants at a level.
        allow_load: report although other processes kept the machine busy.

    Returns: see `cost.load.result`.

    Raises:
        UserError: a response that the context cuts short.
    """
    levels = load.levels(settings.rates, settings.clients)
    lm, prompts = opened(questions, model, settings.prompts, settings.new_tokens, settings.threads)
    able, unsupported = sorted_out(variants, lm)
    size = fitting(lm, _longest(prompts) + settings.new_tokens) if settings.batch == "auto" else settings.batch
    runs: list[dict[str, Any]] = []
    with bar(f"load on {questions.name}", "level", len(able) * len(levels)) as progress:
        for name, method in able.items():
            progress.set_postfix_str(name)
            beside = 1 if method.sequential() else size
            answering = _Answering(name, method, lm, prompts, settings, beside)
            for level in levels:
                runs.append({"variant": name, "batch": beside, **_level(answering, level, seed, allow_load)})
                progress.update()
    return load.result(_protocol(questions, lm, prompts, settings, seed) | {"batch": size}, unsupported, runs)


def opened(
    questions: Questions, model: ModelEntry, count: int, new_tokens: int, threads: int | None
) -> tuple[LM, list[Prompt]]:
    """The decoder, and the prompts of the first `count` questions, which all methods read."""
    plain = specification("naive", make("naive"), questions, model, new_tokens)
    kept = plain.engine.model_dump(include={"dtype", "weights", "kv"})
    options: dict[str, Any] = {"device": model.device, "max_context": model.max_context, **kept}
    lm = load_lm(model.source, threads=threads, **options)
    examples = questions.examples(count)
    return lm, [prompt_of(example, plain, lm.tokenizer, lm.shape.max_context) for example in examples]


def sorted_out(variants: Mapping[str, Method], lm: LM) -> tuple[dict[str, Method], dict[str, str]]:
    """The variants that the model can run; why it cannot run the others."""
    unsupported = {name: reason for name, method in variants.items() if (reason := method.refusal(lm))}
    return {name: method for name, method in variants.items() if name not in unsupported}, unsupported


@dataclass
class _Answering:
    """A method on the prompts; it holds what the method prepares."""

    name: str
    method: Method
    lm: LM
    prompts: Sequence[Prompt]
    settings: LoadSettings
    size: int  # requests that are answered together

    def __post_init__(self) -> None:
        self.limits = Limits(max_new_tokens=self.settings.new_tokens, ignore_stop=True)
        self.here = _Here(self.lm)
        self.states: dict[int, list[Any]] = defaultdict(list)  # of each prompt, those that no request uses
        if self.settings.documents == "ready":
            for place, prompt in enumerate(self.prompts):
                self.states[place].append(self.method.prepare(cast(SpanEngine, self.here), prompt))
        for place in range(len(self.prompts)):  # warm up, and load what a method loads when it is first used
            self.one(place)
        for free in self.states.values():
            free += [deepcopy(free[0], {id(self.here): self.here}) for _ in range(self.size - 1)]

    def one(self, place: int) -> tuple[float, float, int]:
        """Answer a prompt: when the first token and the last were known, and how many there were."""
        _, end, written = self.on(place, self.lm)
        assert self.lm.first_token_at is not None
        return self.lm.first_token_at, end, written

    def on(self, place: int, engine: LM | Seat) -> tuple[float, float, int]:
        """Answer a prompt: when that began and when its last token was known, and how many tokens there were."""
        prompt, start = self.prompts[place], time.perf_counter()
        with self.here.engine(engine):
            free, here = self.states.get(place), cast(SpanEngine, self.here)
            state = free.pop() if free else self.method.prepare(here, prompt)
            written = self.method.answer(here, state, prompt, self.limits).ids
        if free is not None:
            free.append(state)
        self.lm.synchronize()
        end = time.perf_counter()
        if len(written) != self.limits.max_new_tokens:
            raise UserError(
                f"{self.name}: the model's context of {self.lm.shape.max_context} tokens ends the response after "
                f"{len(written)} of {self.limits.max_new_tokens} tokens"
            )
        return start, end, len(written)

    def server(self) -> SteppingServer:
        return OneByOne(self.one, WallClock()) if self.size == 1 else _SideBySide(self)


class _Here:
    """The engine of the calling thread, so that a prepared state can serve requests of different threads in turn."""

    def __init__(self, lm: LM) -> None:
        self._lm, self._thread = lm, threading.local()

    @contextmanager
    def engine(self, engine: LM | Seat) -> Iterator[None]:
        """This engine, for the thread's calls inside the block."""
        self._thread.engine = engine
        try:
            yield
        finally:
            del self._thread.engine

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._thread, "engine", self._lm), name)


class _SideBySide:
    """Requests share the decoder's passes: an arriving one is admitted to the next pass if there is room."""

    def __init__(self, answering: _Answering) -> None:
        self._answering, self._batch = answering, Batch(answering.lm, answering.size)
        self._requests: dict[Task[tuple[float, float, int]], Request] = {}

    @property
    def busy(self) -> bool:
        return bool(self._batch.unfinished)

    def admit(self, request: Request) -> None:
        self._requests[self._batch.submit(partial(self._answering.on, request.prompt))] = request

    def step(self) -> Sequence[TimedRequest]:
        return [self._served(task) for task in self._batch.step()]

    def _served(self, task: Task[tuple[float, float, int]]) -> TimedRequest:
        start, end, written = task.result()
        assert task.engine.first_token_at is not None
        return TimedRequest(self._requests.pop(task), start, task.engine.first_token_at, end, written)


def _longest(prompts: Sequence[Prompt]) -> int:
    """Tokens of the longest prompt."""
    counts = [prompt.token_counts().values() for prompt in prompts]
    return max(sum(sum(n) if isinstance(n, list) else n for n in of) for of in counts)


def _level(answering: _Answering, level: Level, seed: int, allow_load: bool) -> dict[str, Any]:
    settings = answering.settings
    gc.collect()
    return load.run_level(
        answering.server(),
        level,
        prompts=len(answering.prompts),
        requests=settings.requests,
        warmup=settings.warmup,
        targets=Targets(settings.target_first_token_s, settings.target_per_token_s),
        seed=seed,
        allow_load=allow_load,
        gpu=watch(str(answering.lm.device)),
    )


def _protocol(
    questions: Questions, lm: LM, prompts: Sequence[Prompt], settings: LoadSettings, seed: int
) -> dict[str, Any]:
    return {
        **settings.model_dump(exclude={"methods"}),
        "dataset": questions.name,
        "tokens": prompts[0].token_counts(),  # of the first prompt
        "prompts": len(prompts),
        "seed": seed,
        "threads": torch.get_num_threads(),
        **asdict(lm.precision),
        "device": lm.device.type,
        "cache_state": CACHE_STATES[settings.documents],
    }
