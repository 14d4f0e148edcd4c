"""The load and stream protocols on a model behind a server, with many requests under way at once."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ragauge.cost import arrivals
from ragauge.cost.arrivals import Clock, Level, Request, TimedRequest
from ragauge.cost.machine import competing_load
from ragauge.cost.settings import LoadSettings, StreamSettings
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.measure import load, served, server_metrics, stream, timing
from ragauge.measure.served import Patience, ServedBench, new_nonce, pause_after, timed_answer
from ragauge.methods import Method
from ragauge.prompts import Prompt

MAX_OPEN = 4096  # requests under way; more wait on this side
POLL_S = 60.0  # at most, between two looks at requests under way


def measure_load(
    variants: Mapping[str, Method],
    bench: ServedBench,
    settings: LoadSettings,
    seed: int = 0,
) -> dict[str, Any]:
    """The load protocol, as `load.measure_load` has it; the server batches requests as it likes.

    Returns: its keys; a level also has `server`, the server's view, `client_late_p99_s` and `load_share`. A request
        that failed has its `failure` in place of times.
    """
    levels = [*(Level(rate=rate) for rate in settings.rates), *(Level(clients=n) for n in settings.clients)]
    able, unsupported = bench.adapted(variants)
    runs: list[dict[str, Any]] = []
    with bar(f"load on {bench.dataset}", "level", len(able) * len(levels)) as progress:
        for name, method in able.items():
            for level in levels:
                progress.set_postfix_str(f"{name}, {level.name}")
                runs.append({"variant": name, "batch": None, **_measure_level(bench, method, level, settings, seed)})
                progress.update()
    for run in runs:
        targets = {"first_token_s": settings.target_first_token_s, "per_token_s": settings.target_per_token_s}
        run["summary"] = {} if run["refused"] else arrivals.summarise(run["requests"], targets, seed)
    protocol = settings.model_dump(exclude={"methods"}) | bench.protocol(seed, settings.server_cache)
    protocol |= {"counted": load.COUNTED}
    return {
        "provenance": served.provenance_of(bench.engine),
        "protocol": protocol,
        "unsupported": unsupported,
        "levels": runs,
    }


def _measure_level(
    bench: ServedBench, method: Method, level: Level, settings: LoadSettings, seed: int
) -> dict[str, Any]:
    remote, number = _Remote(bench, method, bench.prompts, settings), settings.warmup + settings.requests
    with remote, server_metrics.watched(bench.engine) as metrics, competing_load() as busy:
        done = arrivals.drive(remote, level, len(bench.prompts), number, Clock(), seed)
    rows = arrivals.rows(done, settings.warmup)
    return {"rate": level.rate, "clients": level.clients, **_view(bench, rows, settings, busy.share, metrics)}


def _view(
    bench: ServedBench,
    rows: Sequence[Mapping[str, Any]],
    settings: LoadSettings | StreamSettings,
    share: float,
    metrics: Any,
) -> dict[str, Any]:
    """What the server and this client say of the requests."""
    assert bench.engine.client is not None
    late_s, counted = bench.engine.client.late_s, [row for row in rows if not row["warmup"]]
    cache = settings.server_cache
    if isinstance(settings, StreamSettings):  # in which the cache fills
        cache = "found"
    return {
        "load_share": share,
        "gpu": None,
        "client_late_p99_s": served.p99(late_s),
        "server": served.server_summary(counted) | {"metrics": metrics},
        "refused": served.refusal(counted, cache, settings, late_s),
        "requests": rows,
    }


class _Remote:
    """Sends requests to the server as they arrive, each from a thread of its own."""

    def __init__(
        self, bench: ServedBench, method: Method, prompts: Sequence[Prompt], settings: LoadSettings | StreamSettings
    ) -> None:
        self.engine, self.method, self.prompts, self.settings = bench.engine, method, prompts, settings
        self.limits = timing.fixed_length(settings.new_tokens)
        self.patience = Patience(bench.engine.server.timeout_s)
        self._turn, self._done, self._open = threading.Lock(), SimpleQueue[TimedRequest | BaseException](), 0
        self._pool = ThreadPoolExecutor(MAX_OPEN)

    def __enter__(self) -> _Remote:
        self.engine.nonce = new_nonce if self.settings.server_cache == "cold" else str
        if isinstance(self.settings, LoadSettings):  # learn what the server refuses, and load what the method does
            for place in range(len(self.prompts)):
                self.serve(Request(place, place, time.perf_counter()))
        assert self.engine.client is not None
        self.engine.client.late_s.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def busy(self) -> bool:
        return self._open > 0

    def admit(self, request: Request) -> None:
        self._open += 1
        self._pool.submit(self._serve, request)

    def step(self, until: float) -> Sequence[TimedRequest]:
        try:
            done = [self._done.get(timeout=max(0.0, min(until - time.perf_counter(), POLL_S)))]
            while not self._done.empty():
                done.append(self._done.get())
        except Empty:
            return []
        self._open -= len(done)
        for one in done:
            if isinstance(one, BaseException):
                raise one
        return [one for one in done if isinstance(one, TimedRequest)]

    def _serve(self, request: Request) -> None:
        try:
            self._done.put(self.serve(request))
        except BaseException as error:  # of the method: raised where the results are read
            self._done.put(error)

    def serve(self, request: Request) -> TimedRequest:
        """Answer a request, while others wait for the server."""
        with self._turn:
            start, engine = time.perf_counter(), self.engine.for_thread(self._turn, MAX_OPEN)
            prompt = self.prompts[request.prompt]
            try:
                if self.patience.over:
                    raise UserError(f"not asked: the server answered nothing for {self.patience.limit_s:g} s")
                state = self.method.prepare(engine, prompt)  # type: ignore[arg-type]
                answer = timed_answer(engine, self.method, state, prompt, self.limits)
            except UserError as error:
                end, pause_s = time.perf_counter(), 0.0 if self.patience.over else pause_after(error)
                return TimedRequest(request, start, end, end, 0, str(error), pause_s)
            self.patience.answered()
        times = answer.start_s, answer.first_token_s, answer.end_s
        return TimedRequest(request, *times, answer.new_tokens, facts=answer.facts)


# --- streams ---


def measure_stream(
    variants: Mapping[str, Method],
    bench: ServedBench,
    settings: StreamSettings,
    seed: int = 0,
) -> dict[str, Any]:
    """The stream protocol, as `stream.measure_stream` has it; what is found of documents, the server's cache has.

    With `server_cache: cold` a word in front of a variant's prompts is new, so that its stream begins with an empty
    cache; with `warm` each request was answered once before.

    Returns: its keys; a stream also has those of a served level. `missed_s` and `found_s` are of a prompt that is new,
        and of the same one again.
    """
    prompts = stream.requests(bench.prompts, settings, seed)
    able, unsupported = bench.adapted(variants)
    streams = []
    with bar(f"stream on {bench.dataset}", "variant", len(able)) as progress:
        for name, method in able.items():
            progress.set_postfix_str(name)
            streams.append({"variant": name, **_stream(bench, method, prompts, settings, seed)})
            progress.update()
    corpus = {tuple(ids) for prompt in bench.prompts for ids in prompt.documents}
    sizes = {"corpus_documents": len(corpus), "corpus_tokens": sum(map(len, corpus))}
    protocol = {**settings.model_dump(exclude={"methods"}), **bench.protocol(seed, settings.server_cache), **sizes}
    return {
        "provenance": served.provenance_of(bench.engine),
        "protocol": protocol,
        "unsupported": unsupported,
        "streams": streams,
    }


def _stream(
    bench: ServedBench, method: Method, prompts: Sequence[Prompt], settings: StreamSettings, seed: int
) -> dict[str, Any]:
    engine, ends = bench.engine, list[list[TimedRequest]]()
    with _Remote(bench, method, prompts, settings) as remote:
        for place in range(stream.PROBES):
            word = new_nonce()
            engine.nonce = partial(str, word)
            ends.append([remote.serve(Request(0, place % len(prompts), 0.0)) for _ in range(2)])
        word = new_nonce() if settings.server_cache == "cold" else ""
        engine.nonce = partial(str, word)
        with server_metrics.watched(engine) as metrics, competing_load() as busy:
            for _ in range(2 if settings.server_cache == "warm" else 1):
                done = [_paused(remote, place) for place in range(len(prompts))]
    rows = arrivals.rows(done, warmup=0)
    known = [row for row in rows if row.get("prompt_tokens") and row.get("cached_tokens") is not None]
    found = {row["request"]: row["cached_tokens"] / row["prompt_tokens"] for row in known}
    view = _view(bench, [{**row, "found": found.get(row["request"])} for row in rows], settings, busy.share, metrics)
    answered = [row for row in rows if not row.get("failure")]
    missed_s, found_s = (
        statistics.median(times)
        if (times := [e[i].first_token_s - e[i].start_s for e in ends if not e[i].failure])
        else None
        for i in range(2)
    )
    return {
        **view,
        "hit_rate": served.cached_share(answered),
        "missed_s": missed_s,
        "found_s": found_s,
        "summary": stream.summarise(answered, seed) if answered and not view["refused"] else {},
        "failed": len(rows) - len(answered),
    }


def _paused(remote: _Remote, place: int) -> TimedRequest:
    """The next request of a stream, after the pause that a failure asks for."""
    done = remote.serve(Request(place, place, time.perf_counter()))
    time.sleep(done.pause_s)
    return done
