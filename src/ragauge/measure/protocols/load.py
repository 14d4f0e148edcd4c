"""The load protocol: requests on a data set's questions arrive as `arrivals` has them, and the
decoder answers.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache, partial
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any, cast

from ragauge.config.protocols import SEARCH_LEVELS, LoadSettings
from ragauge.datasets.base.dataset import TraceEntry
from ragauge.engines.batching import BatchScheduler, EngineProxy, max_batch_size
from ragauge.engines.lm import LM
from ragauge.engines.protocol import SpanEngine
from ragauge.engines.store import MemoryStore
from ragauge.io.files import write_file
from ragauge.io.progress import bar
from ragauge.measure import timing
from ragauge.measure.protocols import arrivals, stream
from ragauge.measure.protocols.arrivals import (
    Clock,
    Level,
    OneByOne,
    ScheduledRequest,
    SteppingServer,
    TimedRequest,
    losses,
)
from ragauge.measure.protocols.search import (
    level_at,
    next_level,
    over_saturation,
    requests_of,
)
from ragauge.measure.timing import Bench
from ragauge.methods.base.method import Method
from ragauge.methods.base.states import effective_state, in_state, usable_state
from ragauge.results.capacity import capacities
from ragauge.results.times import (
    LoadLevel,
    LoadTimes,
    RequestSummary,
    RequestTimes,
    TraceFacts,
    Watched,
    remarks,
)
from ragauge.text import aligned, significant

COLUMNS = "variant,arrivals,first token p50,p95,p99 s,token p95 s,questions/s,steady,good,failed"
COUNTED = "first_token_s and total_s count from a request's arrival, its time in the queue included"
CACHE_STATE = "what was read before the question is in memory when a request arrives"
REPLAYED = "a level begins with nothing cached; what a request reads of its documents is there for later ones"
NOT_STEADY = (
    "the time of an answer did not become steady: half of the requests count as the warm-up"
)
SIMULATED = "simulated: random words; lengths and the blocks that requests share are the trace's"


def measure_load(
    variants: Mapping[str, Method],
    bench: Bench,
    settings: LoadSettings,
    finished: Path,
    seed: int = 0,
) -> LoadTimes:
    """The load protocol, one variant after another; those that the model cannot run are left out
    with the reason.

    With the same `seed`, arrivals are the same for all variants at a level. `finished`: of
    `measure_levels`.

    Raises:
        UserError: a response that the context cuts short.
    """
    able, unsupported = bench.supported(variants)
    longest = max(prompt.total_tokens for prompt in bench.prompts) + max(
        lengths(settings, bench.trace)
    )
    batch = max_batch_size(bench.engine, longest) if settings.batch == "auto" else settings.batch

    @lru_cache(None if settings.find else 1)  # a search has a level of each method in turn
    def server_of(name: str) -> _Server:
        size = 1 if able[name].sequential() else batch
        return _Server(name, able[name], bench, settings, size)

    def measure(name: str, level: Level) -> LoadLevel:
        server = server_of(name)

        def work() -> list[RequestTimes]:
            if level.speed:
                server.forget()
            alone = OneByOne(partial(server.answer, engine=server.lm))
            stepping = alone if server.size == 1 else _Batched(server)
            return drive(stepping, level, settings, len(bench.prompts), seed)

        rows, seen = timing.watched(bench.engine, settings.allow_load, work)
        return level_times(level, rows, seen, settings, seed, variant=name, batch=server.size)

    measured = measure_levels(able, bench.dataset, bench.trace, settings, measure, finished)
    bench.engine.documents = None  # the store of a replay
    more: dict[str, Any] = {"batch": batch, "cache_state": CACHE_STATE, "counted": COUNTED}
    if bench.trace:
        trace = trace_facts(bench.trace)
        more |= {"state": "nothing", "cache_state": REPLAYED, "trace": trace}
    return LoadTimes(**bench.result(settings, seed, unsupported, **more), levels=measured)


def measure_levels(
    names: Collection[str],
    dataset: str,
    trace: Sequence[TraceEntry],
    settings: LoadSettings,
    measure: Callable[[str, Level], LoadLevel],
    finished: Path,
) -> list[LoadLevel]:
    """Measure one variant after another at the levels of the settings; or search the highest loads
    of all of them, a level of each in turn, so that a machine's slower hours are everybody's.

    `finished`: a folder with a file of each measured level, which an interrupted run leaves: the
    same settings have the same levels in the same order.
    """
    levels = levels_of(settings, trace)
    measured = list[LoadLevel]()
    pending = list(names)
    with bar(
        f"load on {dataset}", "level", len(names) * (len(levels) or SEARCH_LEVELS)
    ) as progress:

        def measure_next(name: str, level: Level) -> None:
            progress.set_postfix_str(f"{name}, {level.name}")
            path = finished / f"{len(measured)}.json"
            if not path.is_file():
                write_file(path, measure(name, level).model_dump_json(exclude_unset=True).encode())
            measured.append(LoadLevel.model_validate_json(path.read_bytes()))
            progress.update()

        while pending and settings.find:
            for name in tuple(pending):
                level = next_level(settings, measured, name)
                if level:
                    measure_next(name, level)
                else:
                    pending.remove(name)
        for name, level in product(pending, levels):
            measure_next(name, level)
    return measured


def levels_of(settings: LoadSettings, trace: Sequence[TraceEntry]) -> list[Level]:
    """The levels of a protocol, given the trace of the prompts that are replayed; none of a search."""
    turns = defaultdict[str, list[int]](list)
    for number, entry in enumerate(trace):
        if entry.conversation:
            turns[entry.conversation].append(number)
    next_turns = dict(chain.from_iterable(map(pairwise, turns.values())))
    moments = [entry.arrival_s for entry in trace]
    return [
        *(level_at(settings, rate=rate) for rate in settings.rates),
        *(level_at(settings, clients=number) for number in settings.clients),
        *(
            level_at(settings, speed=speed, moments=moments, next_turns=next_turns)
            for speed in settings.speeds
        ),
    ]


def lengths(settings: LoadSettings, trace: Sequence[TraceEntry]) -> list[int]:
    """The tokens of the response to each prompt of a trace; without one, of every response."""
    return [entry.new_tokens or settings.new_tokens for entry in trace] or [settings.new_tokens]


def trace_facts(trace: Sequence[TraceEntry]) -> TraceFacts:
    """The part of a result's protocol about a replayed trace."""
    is_simulated = any(entry.is_simulated for entry in trace)
    return TraceFacts(
        requests=len(trace),
        seconds=trace[-1].arrival_s - trace[0].arrival_s,
        text=SIMULATED if is_simulated else "the trace's own",
    )


def drive(
    server: SteppingServer, level: Level, settings: LoadSettings, prompts: int, seed: int
) -> list[RequestTimes]:
    """The times of all requests of a level, by the wall clock. The first ones find the server
    emptier than later ones do: a warm-up, which the summary leaves out.
    """
    count = requests_of(level, settings)
    watch = over_saturation(settings, level) if settings.find else None
    served = arrivals.drive(server, level, prompts, count, Clock(), seed, watch)
    return arrivals.rows(served, settings.warmup, level.ramp_s)


def level_times(
    level: Level,
    rows: list[RequestTimes],
    seen: Watched,
    settings: LoadSettings,
    seed: int,
    **facts: Any,
) -> LoadLevel:
    """The times of a level; `facts`: its variant and batch."""
    notes = []
    sent = sum(row.arrival_at_s >= level.ramp_s for row in rows)
    count = requests_of(level, settings)
    if settings.find and sent < count:
        notes.append(f"over-saturated: ended after {sent} of {count} requests")
    if settings.warmup == "steady" and 2 * sum(not row.warmup for row in rows) <= sent + 1:
        notes.append(NOT_STEADY)
    clients = level.clients or int(bool(level.rate))
    summary = RequestSummary()
    if all(row.warmup for row in rows):
        notes.append(f"all of its {len(rows)} requests are of the warm-up")
    elif not seen.refused:
        summary = arrivals.summarise(rows, settings.targets, seed, clients)
    return LoadLevel(
        **facts,
        rate=level.rate,
        clients=level.clients,
        speed=level.speed,
        summary=summary,
        requests=rows,
        remarks=notes,
        **seen.to_json(),
    )


class _Server:
    """A method on the prompts, with what it has prepared of them."""

    def __init__(
        self, name: str, method: Method, bench: Bench, settings: LoadSettings, size: int
    ) -> None:
        self.name = name
        self.lm = bench.engine
        self.prompts = bench.prompts
        self.settings = settings
        self.size = size  # size: requests that are answered together
        one_document = all(len(prompt.documents) == 1 for prompt in self.prompts)
        state = effective_state(usable_state(method, one_document), settings.state)
        # in a replay a request finds what earlier ones have stored
        self.configured = self.method = method if bench.trace else in_state(method, state)
        self.limits = list(map(timing.fixed_length, lengths(settings, bench.trace)))
        self.is_replay = bool(bench.trace)
        self.engine = _ThreadEngine(self.lm)
        here = cast(SpanEngine, self.engine)
        # of each prompt, those that no request uses
        self.free_states = {
            number: [self.method.prepare(here, prompt)]
            for number, prompt in enumerate(self.prompts)
            if state != "nothing" and not self.is_replay
        }
        # warm up, and load what a method loads when it is first used
        for number in range(1 if self.is_replay else len(self.prompts)):
            self.answer(ScheduledRequest(number, number, 0.0), self.lm)
        for free in self.free_states.values():
            free += [deepcopy(free[0], {id(self.engine): self.engine}) for _ in range(size - 1)]

    def forget(self) -> None:
        """Begin with nothing stored of documents, as a replay does."""
        self.method = stream.fresh(self.configured, self.settings.store_gb)
        self.lm.documents = MemoryStore("load", int(self.settings.store_gb * 1e9))

    def answer(self, request: ScheduledRequest, engine: LM | EngineProxy) -> TimedRequest:
        """Answer a request on an engine; in a replay, with what was stored of its documents."""
        number = request.prompt
        prompt = self.prompts[number]
        limits = self.limits[number % len(self.limits)]
        start = time.perf_counter()
        with self.engine.using(engine), engine.tracing() as trace:
            free = self.free_states.get(number)
            here = cast(SpanEngine, self.engine)
            state = free.pop() if free else self.method.prepare(here, prompt)
            answer = self.method.answer(here, state, prompt, limits)
        if free is not None:
            free.append(state)
        self.lm.synchronize()
        end = time.perf_counter()
        timing.check_length(answer, limits, self.lm, self.name)
        first = engine.first_token_at
        assert first is not None
        facts = stream.found_share(trace, prompt) if self.is_replay else {}
        return TimedRequest(request, start, first, end, len(answer.ids), facts=facts)


class _ThreadEngine:
    """The engine of the calling thread, so that a prepared state can serve requests of different
    threads in turn.
    """

    def __init__(self, lm: LM) -> None:
        self._lm = lm
        self._thread = threading.local()

    @contextmanager
    def using(self, engine: LM | EngineProxy) -> Iterator[None]:
        """Use this engine for the thread's calls inside the block."""
        self._thread.engine = engine
        try:
            yield
        finally:
            del self._thread.engine

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._thread, "engine", self._lm), name)


class _Batched:
    """Requests share the decoder's passes: an arriving one is admitted to the next pass if there is
    room.
    """

    def __init__(self, server: _Server) -> None:
        self._answer = server.answer
        self._batch = BatchScheduler(server.lm, server.size)

    @property
    def busy(self) -> bool:
        return bool(self._batch.unfinished)

    def admit(self, request: ScheduledRequest) -> None:
        self._batch.submit(partial(self._answer, request))

    def step(self, until: float) -> Sequence[TimedRequest]:
        return [task.result() for task in self._batch.step()]


def table(times: LoadTimes) -> str:
    """A line a variant and level: the percentiles and what was served."""
    lines = [COLUMNS.split(",")]
    notes = list[str]()
    for level in times.levels:
        summary = level.summary
        name = Level(level.rate, level.clients, level.speed).name
        cells = ["nothing answered" if summary.requests else "no summary", *[""] * 7]
        if first := summary.first_token_s:
            token = summary.per_token_s
            steady = summary.steady
            values = [
                *(percentile.value for _, percentile in first),
                token.p95.value if token else None,
                summary.questions_per_s,
                steady.questions_per_s if steady else None,
            ]
            cells = list(map(significant, values))
            cells += [f"{summary.good_share:.0%}", str(summary.failed)]
        lines.append([level.variant, name, *cells])
        counted = [row for row in level.requests if not row.warmup]
        about = [*level.remarks, *losses(counted), *remarks(level.requests)]
        notes += [f"{level.variant}, {name}: {note}" for note in about]
    if times.protocol.find:
        notes += [f"{found.variant}: {found.described()}" for found in capacities(times)]
    trace = times.protocol.trace
    notes += [f"text of the prompts: {trace.text}"] if trace else []
    return "\n".join([aligned(lines), *notes])
