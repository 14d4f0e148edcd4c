"""Requests that arrive by a clock of their own, and what their users wait for, counted from the
arrival.

Poisson arrivals at a rate do not wait for the server: a request that finds it busy queues, and the
queue is part of its time to first token (no coordinated omission). Nor do those of a trace, except
for the next turn of a conversation. With a number of clients, each sends its next request when it
was answered. Requests go to a `SteppingServer`; between two of its steps, those that have arrived
are admitted.
"""

import math
import random
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from ragauge.results.times import (
    Percentile,
    Percentiles,
    RequestSummary,
    RequestTimes,
)

PERCENTILES = (50, 95, 99)
RESAMPLES = 1000
TIMES = ("first_token_s", "per_token_s", "total_s", "queued_s")


@dataclass(frozen=True)
class Level:
    """How requests arrive: exactly one of the first three is set."""

    rate: float | None = None  # of Poisson arrivals, requests a second
    clients: int | None = None  # each sends its next request when it was answered
    speed: float | None = None  # of a trace's requests; 2: in half of its time
    moments: Sequence[float] = ()  # of a trace's requests at speed 1, in seconds, ascending
    # request -> a later one that waits for its answer
    next_turns: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.speed:
            return f"trace x {self.speed:g}"
        return f"{self.clients} clients" if self.clients else f"{self.rate:g} a second"


@dataclass(frozen=True)
class ScheduledRequest:
    number: int
    prompt: int
    arrival_s: float  # by the server's clock


@dataclass(frozen=True)
class TimedRequest:
    """A request and its times, on one clock."""

    request: ScheduledRequest
    start_s: float  # when the server began it
    first_token_s: float
    end_s: float
    new_tokens: int | None  # None: not counted
    failure: str | None = None  # why there is no answer
    pause_s: float = 0.0  # that the server wishes before its client's next request
    facts: Mapping[str, Any] = field(default_factory=dict)  # further ones of its record


class Clock:
    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self.now()))


class SteppingServer(Protocol):
    """A server that answers requests step by step."""

    @property
    def busy(self) -> bool:
        """Whether any admitted request is still unanswered."""

    def admit(self, request: ScheduledRequest) -> None: ...

    def step(self, until: float) -> Sequence[TimedRequest]:
        """Work for a while, or wait until that moment at most; returns the requests that were
        completed.
        """


class OneByOne:
    """Requests are answered in the order of their arrival, each alone."""

    def __init__(self, answer: Callable[[int], tuple[float, float, int]], clock: Clock) -> None:
        """`answer`: a prompt's number -> (time of the first token, time of the last, number of
        tokens).
        """
        self._answer = answer
        self._clock = clock
        self._queue: deque[ScheduledRequest] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def admit(self, request: ScheduledRequest) -> None:
        self._queue.append(request)

    def step(self, until: float) -> Sequence[TimedRequest]:
        request = self._queue.popleft()
        start = self._clock.now()
        return [TimedRequest(request, start, *self._answer(request.prompt))]


def drive(
    server: SteppingServer, level: Level, prompts: int, requests: int, clock: Clock, seed: int = 0
) -> list[TimedRequest]:
    """Serve `requests` requests, in the order in which they are answered. They ask the prompts in
    turn, from 0 to `prompts` - 1; with the same `seed`, arrivals are the same for every server. A
    next turn arrives at its moment, or when the turn before it is answered, if that is later.
    """
    start = clock.now()
    draw = random.Random(seed)
    if level.rate:
        moments = [start]
        while len(moments) < requests:
            moments.append(moments[-1] + draw.expovariate(level.rate))
    elif level.speed:
        moments = [
            start + (moment - level.moments[0]) / level.speed for moment in level.moments[:requests]
        ]
    else:
        moments = [start] * min(level.clients or 0, requests)
    coming = deque(ScheduledRequest(i, i % prompts, moment) for i, moment in enumerate(moments))
    sent = len(coming)
    done = list[TimedRequest]()
    turns = {i: coming[i] for i in level.next_turns.values()}
    coming = deque(one for one in coming if one.number not in turns)
    while coming or server.busy:
        while coming and coming[0].arrival_s <= clock.now():
            server.admit(coming.popleft())
        if not server.busy:
            clock.wait_until(coming[0].arrival_s)
            continue
        for served in server.step(coming[0].arrival_s if coming else math.inf):
            done.append(served)
            ready_s = served.end_s + served.pause_s  # when its client may send again
            if level.clients and sent < requests:
                insort(
                    coming,
                    ScheduledRequest(sent, sent % prompts, ready_s),
                    key=attrgetter("arrival_s"),
                )
                sent += 1
            if turn := turns.get(level.next_turns.get(served.request.number, -1)):
                insort(
                    coming,
                    replace(turn, arrival_s=max(turn.arrival_s, ready_s)),
                    key=attrgetter("arrival_s"),
                )
    return done


def rows(served: Sequence[TimedRequest], warmup: int) -> list[RequestTimes]:
    """The times of each request, in the order of arrival."""
    begin = min(timed.request.arrival_s for timed in served)
    ordered = sorted(served, key=lambda timed: timed.request.number)
    return [_times(timed, begin, warmup) for timed in ordered]


def _times(timed: TimedRequest, begin: float, warmup: int) -> RequestTimes:
    """The times of a request, counted from the moment `begin` and from its own arrival."""
    arrival = timed.request.arrival_s
    further = (timed.new_tokens or 1) - 1
    answer_s = {
        "first_token_at_s": timed.first_token_s - begin,
        "first_token_s": timed.first_token_s - arrival,
        "per_token_s": (timed.end_s - timed.first_token_s) / further if further > 0 else None,
        "total_s": timed.end_s - arrival,
    }
    if timed.failure:
        answer_s = dict.fromkeys(answer_s)
    failure = {"failure": timed.failure} if timed.failure else {}
    return RequestTimes(
        request=timed.request.number,
        prompt=timed.request.prompt,
        warmup=timed.request.number < warmup,
        arrival_at_s=arrival - begin,
        start_at_s=timed.start_s - begin,
        end_at_s=timed.end_s - begin,
        new_tokens=timed.new_tokens,
        queued_s=timed.start_s - arrival,
        **{**answer_s, **failure, **timed.facts},
    )


def losses(rows: Sequence[RequestTimes]) -> list[str]:
    """A line for each reason why requests have no answer."""
    reasons = Counter(row.failure for row in rows if row.failure)
    return [
        f"{number} of {len(rows)} requests failed: {reason}" for reason, number in reasons.items()
    ]


def summarise(
    requests: Sequence[RequestTimes],
    targets: Mapping[str, float | None] | None = None,
    seed: int = 0,
    clients: int | None = None,
    seconds: float = 0.0,
) -> RequestSummary:
    """Percentiles of the times with their intervals, throughput and goodput, of the requests after
    the warm-up.

    A request that failed has no times, and is no good answer, nor is one that is shorter than
    requested. `targets`: limits of a good answer by time (one of TIMES), in seconds; without any,
    every other answer is good. `clients`: of a closed loop, which has a steady window. `seconds`:
    that the requests took, by default from the first arrival to the last answer.

    Returns: what docs/protocols.md defines.
    """
    counted = [request for request in requests if not request.warmup]
    begin = min(request.arrival_at_s for request in counted)
    seconds = seconds or max(request.end_at_s for request in counted) - begin
    limits = [(key, limit) for key, limit in (targets or {}).items() if limit is not None]
    answered = [request for request in counted if not request.failure]
    good = sum(
        request.total_s is not None
        and all((getattr(request, key) or 0.0) <= limit for key, limit in limits)
        for request in answered
    )
    served_s = sum(request.end_at_s - request.start_at_s for request in counted)
    times = {key: [s for s in (getattr(r, key) for r in counted) if s is not None] for key in TIMES}
    tokens = [request.new_tokens for request in counted]
    inside, window_s = steady_window(requests, clients) if clients else ([], 0.0)
    steady = {"steady": summarise(inside, targets, seed, seconds=window_s)} if inside else {}
    return RequestSummary(
        **{key: percentiles(values, seed) for key, values in times.items() if values},
        requests=len(counted),
        failed=len(counted) - len(answered),
        seconds=seconds,
        questions_per_s=len(answered) / seconds,
        tokens_per_s=None if None in tokens else sum(filter(None, tokens)) / seconds,
        goodput_per_s=good / seconds,
        good_share=good / len(counted),
        in_service=served_s / seconds,
        **steady,
    )


def steady_window(
    requests: Sequence[RequestTimes], clients: int
) -> tuple[list[RequestTimes], float]:
    """(requests, seconds) of the window in which all clients have a request under way: from the
    first arrival after the warm-up to the first answer after the last arrival, since then a client
    has no more to ask. Requests of the warm-up count if they are answered in it. None where it has
    fewer than a request a client.
    """
    begin = min(request.arrival_at_s for request in requests if not request.warmup)
    last = max(request.arrival_at_s for request in requests)
    end = min((r.end_at_s for r in requests if r.end_at_s > last), default=last)
    inside = [r.model_copy(update={"warmup": False}) for r in requests if begin < r.end_at_s <= end]
    return inside if len(inside) >= clients else [], end - begin


def percentiles(values: Sequence[float], seed: int = 0) -> Percentiles:
    """Percentiles with their 95% intervals, of values in the order of arrival.

    Requests that follow one another share a queue, so blocks of about the square root of n
    successive ones are drawn (the circular block bootstrap of Politis and Romano, 1992).
    """
    data = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    block = math.ceil(math.sqrt(len(data)))
    starts = rng.integers(len(data), size=(RESAMPLES, math.ceil(len(data) / block)))
    places = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, : len(data)] % len(
        data
    )
    drawn = np.percentile(data[places], PERCENTILES, axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5), axis=1)
    exact = np.percentile(data, PERCENTILES)
    p50, p95, p99 = (
        Percentile(value=float(exact[i]), low=float(low[i]), high=float(high[i]))
        for i in range(len(PERCENTILES))
    )
    return Percentiles(p50=p50, p95=p95, p99=p99)
