"""The protocols of `ragauge time`, `load` and `stream` on a model behind a server; see
docs/served-models.md.

Times are by the client's clock, with the server's own where it tells. A request that fails is
counted and not repeated.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings, LoadSettings, StreamSettings, TimedSettings
from ragauge.cost.machine import competing_load, provenance
from ragauge.engines import backend
from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.protocol import SpanEngine
from ragauge.engines.served.completions import Completion
from ragauge.engines.served.http import MAX_PAUSE_S, EndpointError
from ragauge.engines.served.streams import StreamClient
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.progress import bar
from ragauge.measure import timing
from ragauge.measure.inputs import QuestionSource
from ragauge.measure.protocols import arrivals, latency, load, stream
from ragauge.measure.protocols.arrivals import ScheduledRequest, TimedRequest
from ragauge.methods.base.method import Method, State
from ragauge.methods.prompts import Prompt
from ragauge.results.times import (
    SERVER,
    LatencyTimes,
    LoadLevel,
    LoadTimes,
    RequestTimes,
    ServerView,
    StateTimes,
    Stream,
    StreamTimes,
    Trial,
    TrialLoad,
    Watched,
    remarks,
    share_found,
)
from ragauge.text import aligned, significant

MAX_OPEN = 4096  # requests under way; more wait on this side
PAUSE_S = 1.0  # after a failure, before the client's next request, if the server asks for less
# share of prompts in the server's cache: at most where it is cold, at least where warm
MAX_COLD = 0.1
MIN_WARM = 0.5
# tokens of a chat template in front of the user's turn, which the cache may have where it is cold
MAX_TEMPLATE = 64
MAX_LATE_S = 0.02
MAX_LATE_SHARE = 0.05  # of the client's own delay: in seconds, and of the median first token
AnyTimes = TypeVar("AnyTimes", bound=RequestTimes)
CLOCKED = ("first_token_s", "per_token_s")  # what a server's own clock tells
CACHE_STATES = {
    "cold": "a random word in front of each prompt, so that the server's cache has nothing of it",
    "warm": "the server has answered the same prompt before",
    "found": "as the server's cache was found",
}
# of trials, by the server's cache: what it has of a prompt is the beginning, in one order
CACHED_STATES: dict[str, State | None] = {"cold": "nothing", "warm": "set", "found": None}
BEGINS_COLD = "a stream begins with nothing cached; what a request reads is there for later ones"


@dataclass(frozen=True)
class ServedBench(timing.AnyBench[ServedEngine]):
    """A server with the prompts that every method sends to it."""

    @property
    def client(self) -> StreamClient:
        assert self.engine.client
        return self.engine.client

    def facts(self, settings: TimedSettings) -> JsonObject:
        cache = settings.server_cache
        return {
            "device": SERVER,
            "timeout_s": self.engine.server.timeout_s,
            "cache": cache,
            "cache_state": CACHE_STATES[cache],
        }

    def provenance(self) -> JsonObject:
        here = provenance()
        return here | {
            "cpu": f"a server ({self.client.stack or 'unnamed'}), requests from {here['cpu']}",
            "threads": None,
            "server": self.engine.identity(),
        }

    def watched(
        self, settings: TimedSettings, cache: str, work: Callable[[], list[AnyTimes]]
    ) -> tuple[list[AnyTimes], Watched]:
        """Watch the server and this client during some work.

        Returns: the requests that the work returned, and what server and client say of them;
            `refused` is why times must not be reported.
        """
        self.client.late_s.clear()
        with competing_load() as others:
            requests = work()
        counted = [row for row in requests if not row.warmup and not row.failure]
        late_s = sorted(self.client.late_s)[int(0.99 * len(self.client.late_s)) :]
        late_p99_s = late_s[0] if late_s else 0.0
        refused = _refusal(counted, cache)
        if not settings.allow_load:
            refused = refused or _too_late(counted, late_p99_s)
        return requests, Watched(
            load_share=others.share,
            gpu=None,
            client_late_p99_s=late_p99_s,
            refused=refused,
            server=ServerView(cached_share=share_found(counted), **server_medians(counted)),
        )


@contextmanager
def bench(
    questions: QuestionSource, number: int, model: ModelEntry, new_tokens: int
) -> Iterator[ServedBench]:
    """A server with the prompts of the first `number` questions, for the length of the block."""
    assert model.served is not None
    how = model.served.engine_options
    engine = cast(
        ServedEngine,
        backend.load(model.source, model.engine, max_context=model.max_context, served=how),
    )
    with StreamClient() as engine.client:
        prompts = timing.prompts_of(questions, number, model, engine, new_tokens)
        yield ServedBench(engine, prompts, questions.name)


def _refusal(rows: Sequence[RequestTimes], cache: str) -> str | None:
    """Why times must not be reported: a cache in another state than declared, or several models."""
    share = share_found(rows)
    models = list(dict.fromkeys(row.model for row in rows if row.model))
    had = f"the server's cache had {share or 0:.0%} of the prompts, which were to be {cache}"
    most = max((row.cached_tokens or 0 for row in rows), default=0)
    if cache == "cold" and share is not None and share > MAX_COLD and most > MAX_TEMPLATE:
        return f"{had} (allowed: {MAX_COLD:.0%})"
    if cache == "warm" and share is not None and share < MIN_WARM:
        return f"{had} (required: {MIN_WARM:.0%})"
    if len(models) > 1:
        return f"the server changed its model while it was measured: {', '.join(models)}"
    return None


def _too_late(rows: Sequence[RequestTimes], late_s: float) -> str | None:
    """Why the client's own delay (99th percentile) spoils the times; None where it does not."""
    first = [row.first_token_s for row in rows if row.first_token_s is not None]
    if not first or late_s <= max(MAX_LATE_S, MAX_LATE_SHARE * statistics.median(first)):
        return None
    return f"this client was {late_s:.3f} s late (99th percentile), as its machine was busy; or allow the load"


class Sender:
    """Sends a method's requests to a server: one by one by `serve`, or as they arrive, each in a
    thread of its own.
    """

    def __init__(
        self, bench: ServedBench, method: Method, prompts: Sequence[Prompt], *new_tokens: int
    ) -> None:
        """`new_tokens`: of the response to each prompt, or to every one."""
        self.engine = bench.engine
        self.method = method.for_run()
        self.prompts = prompts
        self.limits = list(map(timing.fixed_length, new_tokens))
        self.timeout_s = bench.engine.server.timeout_s
        self._turn = threading.Lock()
        self._done = SimpleQueue[Future[TimedRequest]]()
        self._open = 0
        self._pool = ThreadPoolExecutor(MAX_OPEN)
        self._answered_at = math.inf  # since when nothing was answered
        self._problem = ""  # of the last request that failed

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def busy(self) -> bool:
        return self._open > 0

    def admit(self, request: ScheduledRequest) -> None:
        self._open += 1
        self._pool.submit(self.serve, request).add_done_callback(self._done.put)

    def step(self, until: float) -> Sequence[TimedRequest]:
        wait_s = min(max(0.0, until - time.perf_counter()), threading.TIMEOUT_MAX)
        try:
            done = self._done.get(timeout=wait_s)
        except Empty:
            return []
        self._open -= 1
        return [done.result()]

    def serve(self, request: ScheduledRequest) -> TimedRequest:
        """Answer a request, while others wait for the server."""
        with self._turn:
            engine = self.engine.for_thread(self._turn, MAX_OPEN)
            prompt = self.prompts[request.prompt]
            limits = self.limits[request.prompt % len(self.limits)]
            spans = cast(SpanEngine, engine)
            start = time.perf_counter()
            self._answered_at = min(self._answered_at, time.monotonic())
            try:
                if self.is_lost:
                    raise UserError(
                        f"not sent, after {self.timeout_s:g} s without an answer: {self._problem}"
                    )
                state = self.method.prepare(spans, prompt)
                start = time.perf_counter()
                with engine.tracing():
                    self.method.answer(spans, state, prompt, limits)
                self._answered_at = time.monotonic()
                return timed_request(request, start, engine, limits.max_new_tokens)
            except UserError as error:
                self._problem = self._problem if self.is_lost and self._problem else str(error)
                wish_s = error.wish_s if isinstance(error, EndpointError) else 0.0
                pause_s = 0.0 if self.is_lost else min(max(PAUSE_S, wish_s), MAX_PAUSE_S)
                end = time.perf_counter()
                return TimedRequest(request, start, end, end, 0, str(error), pause_s)

    @property
    def is_lost(self) -> bool:
        """Whether the server has been silent for so long that no more requests are sent."""
        return time.monotonic() - self._answered_at > self.timeout_s


def timed_request(
    request: ScheduledRequest, start: float, engine: ServedEngine, requested: int
) -> TimedRequest:
    """The times of the engine's last response, of which so many tokens were requested."""
    exchange = engine.exchange
    completion = engine.completion
    first = engine.first_token_at
    assert exchange
    assert completion
    assert first
    notes = [*exchange.remarks, exchange.counting]
    if exchange.response_tokens is None and completion.finish == "length":
        exchange = exchange.model_copy(update={"response_tokens": requested})
        notes += [
            f"counted as the {requested} at which it says that it ended",
            exchange.counting,
        ]
    tokens = exchange.response_tokens
    facts = exchange.model_dump(include={"prompt_tokens", "cached_tokens"})
    facts |= {"model": completion.model, "server": server_times(completion)}
    facts["per_token_s"] = exchange.per_token_s
    if exchange.prompt_tokens and exchange.cached_tokens is not None:
        facts["found"] = exchange.cached_tokens / exchange.prompt_tokens
        facts["found_of"] = exchange.prompt_tokens
    if (tokens or 0) < requested:
        notes.append(f"{tokens or 'an unknown number'} of {requested} tokens, so without total_s")
        facts["total_s"] = None
    if any(notes):
        facts["remarks"] = list(filter(None, notes))
    return TimedRequest(request, start, first, completion.ended, tokens, facts=facts)


def server_times(completion: Completion) -> dict[str, float] | None:
    """Seconds of the first token and of each later one by the server's clock, of its `timings`;
    None without them.
    """
    stated = [completion.timings.get(key) for key in ("prompt_ms", "predicted_ms", "predicted_n")]
    values = [float(value) for value in stated if isinstance(value, int | float)]
    if len(values) < len(stated):
        return None
    prompt_ms, predicted_ms, tokens = values
    later = {"per_token_s": predicted_ms / 1e3 / (tokens - 1)} if tokens > 1 else {}
    return {"first_token_s": prompt_ms / 1e3, **later}


def server_medians(rows: Sequence[RequestTimes]) -> dict[str, float]:
    """The median times by the server's own clock, as far as it tells."""
    clocks = [row.server for row in rows if row.server]
    seconds = {key: [clock[key] for clock in clocks if key in clock] for key in CLOCKED}
    return {key: statistics.median(values) for key, values in seconds.items() if values}


def new_nonce() -> str:
    """A line that no prompt began with before."""
    return f"[{secrets.token_hex(4)}]\n"


# --- the protocols ---


def measure_latency(
    variants: Mapping[str, Method], bench: ServedBench, settings: LatencySettings, seed: int = 0
) -> LatencyTimes:
    """Time the variants with every response length, as `latency.measure_latency` does. A trial
    without an answer has its `failure` in place of times.
    """
    first, *others = (
        _time(variants, bench, settings, tokens, seed) for tokens in settings.all_new_tokens
    )
    return first.model_copy(update={"other_lengths": others})


def _time(
    variants: Mapping[str, Method],
    bench: ServedBench,
    settings: LatencySettings,
    new_tokens: int,
    seed: int,
) -> LatencyTimes:
    able, unsupported = bench.supported(variants)
    senders = {
        name: Sender(bench, method, bench.prompts, new_tokens) for name, method in able.items()
    }
    bench.engine.nonce = new_nonce if settings.server_cache == "cold" else str
    order = random.Random(seed)
    state = CACHED_STATES[settings.server_cache]
    count = len(able) * settings.trials

    def send_all() -> list[Trial]:
        trials = []
        for number in range(-settings.warmup, settings.trials):
            for name in order.sample(list(able), len(able)):
                for _ in range(2 if settings.server_cache == "warm" else 1):
                    timed = _served(senders[name], number, number % len(bench.prompts))
                if number >= 0:
                    request = replace(timed.request, arrival_s=timed.start_s)  # it was sent alone
                    times = arrivals.times(replace(timed, request=request), timed.start_s)
                    facts = {"variant": name, "trial": number, "state": state, "disturbed": False}
                    trials.append(Trial(**facts, **times.to_json()))
                    progress.update()
        return trials

    with bar(f"timing on {bench.dataset}", "trial", count) as progress:
        trials, seen = bench.watched(settings, settings.server_cache, send_all)
    answered = [trial for trial in trials if not trial.failure]
    there = StateTimes(summary={} if seen.refused else latency.summarise(answered))
    return LatencyTimes(
        **bench.result(settings, seed, unsupported, new_tokens=new_tokens, warmup=settings.warmup),
        **seen.to_json(),
        load=TrialLoad(share=seen.load_share),
        usable=dict.fromkeys(able, "set") if state else {},
        states={"set" if state == "set" else "documents": there},
        rows=trials,
    )


def _served(sender: Sender, number: int, prompt: int) -> TimedRequest:
    """The next of requests that follow one another, and the pause that a failure asks for."""
    done = sender.serve(ScheduledRequest(number, prompt, time.perf_counter()))
    time.sleep(done.pause_s)
    return done


def latency_table(times: LatencyTimes) -> str:
    """A line a variant, by the client's clock and by the server's, and what was lost."""
    heads = "variant,first token s,per token s,total s,n,server: first token s,per token s,cached"
    lines = [heads.split(",")]
    notes = arrivals.losses(times.rows)
    there = times.states[times.default_state]
    for name, summary in there.summary.items():
        rows = [row for row in times.rows if row.variant == name and not row.failure]
        own_clock = server_medians(rows)
        share = share_found(rows)
        cells = [
            *(significant(summary[key].median) for key in latency.TIMES),
            str(summary["first_token_s"].n),
            *(significant(own_clock.get(key)) for key in CLOCKED),
            "" if share is None else f"{share:.0%}",
        ]
        lines.append([name, *cells])
        notes += [f"{name}: {remark}" for remark in remarks(rows)]
    return "\n".join([aligned(lines), *notes])


def measure_load(
    variants: Mapping[str, Method],
    bench: ServedBench,
    settings: LoadSettings,
    finished: Path,
    seed: int = 0,
) -> LoadTimes:
    """The load protocol, as `load.measure_load` has it; the server batches requests as it likes. A
    request that failed has its `failure` in place of times.
    """
    able, unsupported = bench.supported(variants)
    lengths = load.lengths(settings, bench.trace)
    prompts = bench.prompts
    is_cold = settings.server_cache == "cold"
    bench.engine.nonce = new_nonce if is_cold else str
    warmup = range(1 if bench.trace and settings.server_cache != "warm" else len(prompts))
    reuses = is_cold and bool(bench.trace)  # a replay reuses what it read itself
    cache = "found" if reuses else settings.server_cache
    more: JsonObject = {"trace": load.trace_facts(bench.trace)} if bench.trace else {}
    more |= {"cache_state": load.REPLAYED} if reuses else {}

    def measure(name: str, level: arrivals.Level) -> LoadLevel:
        with Sender(bench, able[name], prompts, *lengths) as sender:
            for index in warmup:  # and learn what the server refuses
                _served(sender, index, index)
            if reuses:
                sender.method = stream.fresh(able[name], settings.store_gb)
                bench.engine.nonce = partial(str, new_nonce())
            work = partial(load.drive, sender, level, settings, len(prompts), seed)
            times = bench.watched(settings, cache, work)
        return load.level_times(level, *times, settings, seed, variant=name, batch=None)

    measured = load.measure_levels(able, bench.dataset, bench.trace, settings, measure, finished)
    state = CACHED_STATES[settings.server_cache]
    result = bench.result(settings, seed, unsupported, counted=load.COUNTED, state=state, **more)
    return LoadTimes(**result, levels=measured)


def measure_stream(
    variants: Mapping[str, Method], bench: ServedBench, settings: StreamSettings, seed: int = 0
) -> StreamTimes:
    """The stream protocol, as `stream.measure_stream` has it; what is found of documents, the
    server's cache has.

    With `server_cache: cold` a word in front of a variant's prompts is new, so that its stream
    begins with an empty cache; with `warm` each request was answered once before. `missed_s` and
    `found_s` are of a new prompt and of the same one again.
    """
    prompts = stream.requests(bench.prompts, settings, seed)
    is_cold = settings.server_cache == "cold"
    cache = "found" if is_cold else settings.server_cache
    watched = partial(bench.watched, settings, cache)

    def stream_of(name: str, method: Method) -> Stream:
        sender = Sender(bench, method, prompts, settings.new_tokens)

        def answer(indices: Iterable[int], anew: bool) -> list[TimedRequest]:
            bench.engine.nonce = partial(str, new_nonce() if anew or is_cold else "")
            for _ in range(2 if cache == "warm" and not anew else 1):
                done = [_served(sender, index, index) for index in indices]
            return done

        return stream.times(name, answer, watched, len(prompts), seed)

    facts = {"cache_state": BEGINS_COLD} if is_cold else {}
    return stream.measured(variants, bench, settings, seed, stream_of, **facts)
