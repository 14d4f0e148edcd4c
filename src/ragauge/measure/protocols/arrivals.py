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
import statistics
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, Protocol

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
BATCH = 5  # successive requests of which the steady part knows the mean alone


@dataclass(frozen=True)
class Level:
    """How requests arrive: exactly one of the first three is set."""

    rate: float | None = None  # of Poisson arrivals, requests a second
    clients: int | None = None  # each sends its next request when it was answered
    speed: float | None = None  # of a trace's requests; 2: in half of its time
    moments: Sequence[float] = ()  # of a trace's requests at speed 1, in seconds, ascending
    # request -> a later one that waits for its answer
    next_turns: Mapping[int, int] = field(default_factory=dict)
    ramp_s: float = 0.0  # in which a rate rises evenly from 0, or the clients come one by one
    duration_s: float | None = None  # after the ramp; None: as many requests as there are
    turns: int = 1  # requests of a conversation, which come one after another
    thinking_s: float = 0.0  # from an answer to its client's next request

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


Watch = Callable[[Sequence[TimedRequest]], bool]
"""Requests answered since the last call, without those that arrived during the ramp -> whether a
level sends no more requests.
"""


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

    def __init__(self, answer: Callable[[ScheduledRequest], TimedRequest]) -> None:
        self._answer = answer
        self._queue: deque[ScheduledRequest] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def admit(self, request: ScheduledRequest) -> None:
        self._queue.append(request)

    def step(self, until: float) -> Sequence[TimedRequest]:
        return [self._answer(self._queue.popleft())]


def drive(
    server: SteppingServer,
    level: Level,
    prompts: int,
    requests: int,
    clock: Clock,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[TimedRequest]:
    """Serve `requests` requests, those that arrive during the ramp not counted, in the order in
    which they are answered. They ask the prompts in turn, from 0 to `prompts` - 1; with the same
    `seed`, arrivals are the same for every server.

    Conversations are as many prompts in turn as they have turns. They are begun at the level's
    moments, at its rate divided by their turns, or by its clients, so that a rate is always of
    requests. A next turn arrives at its moment, or when the turn before it is answered, if that is
    later.
    """
    start = clock.now()
    ramped_s = start + level.ramp_s
    limit = math.inf if level.duration_s else math.ceil(requests / level.turns)
    end = ramped_s + (level.duration_s or math.inf)
    moments = _beginnings(level, start, limit, end, seed)
    coming = deque(_request(i * level.turns, prompts, at) for i, at in enumerate(moments))
    begun = len(coming)
    left = limit - sum(at >= ramped_s for at in moments)
    done = []
    turns = {i: coming[i] for i in level.next_turns.values()}
    coming = deque(one for one in coming if one.number not in turns)
    while coming or server.busy:
        while coming and coming[0].arrival_s <= clock.now():
            server.admit(coming.popleft())
        if not server.busy:
            clock.wait_until(coming[0].arrival_s)
            continue
        answered = server.step(coming[0].arrival_s if coming else math.inf)
        for served in answered:
            done.append(served)
            number = served.request.number
            # when its client may send again
            ready_s = served.end_s + served.pause_s + level.thinking_s
            following = turns.get(level.next_turns.get(number, -1))
            if following:
                following = replace(following, arrival_s=max(following.arrival_s, ready_s))
            elif (number + 1) % level.turns:
                following = _request(number + 1, prompts, ready_s)
            elif level.clients and left > 0:
                following = _request(begun * level.turns, prompts, ready_s)
                begun += 1
                left -= ready_s >= ramped_s
            if following and following.arrival_s < end:
                insort(coming, following, key=attrgetter("arrival_s"))
        if watch and watch([one for one in answered if one.request.arrival_s >= ramped_s]):
            coming.clear()
            end = -math.inf
    if level.turns > 1:  # they were numbered as they were planned
        done.sort(key=attrgetter("request.arrival_s"))
        done = [replace(one, request=replace(one.request, number=i)) for i, one in enumerate(done)]
    return done


def _request(number: int, prompts: int, arrival_s: float) -> ScheduledRequest:
    return ScheduledRequest(number, number % prompts, arrival_s)


def _beginnings(level: Level, start: float, limit: float, end: float, seed: int) -> list[float]:
    """The moments at which conversations begin by themselves: all of a rate or a trace, the first
    of each client.
    """
    if level.clients:
        count = int(min(level.clients, limit))
        return [start + i * level.ramp_s / count for i in range(count)]
    if level.speed:
        first, *_ = level.moments
        return [start + (moment - first) / level.speed for moment in level.moments[: int(limit)]]
    assert level.rate
    draw = random.Random(seed)
    moments = []
    at_full_rate = 0.0  # the moment by a clock that the ramp slows down
    half = level.ramp_s / 2
    while limit > 0:
        ramping = at_full_rate < half
        at = start + (2 * math.sqrt(half * at_full_rate) if ramping else at_full_rate + half)
        if at >= end:
            break
        moments.append(at)
        limit -= not ramping
        at_full_rate += draw.expovariate(level.rate / level.turns)
    return moments


def rows(
    served: Sequence[TimedRequest], warmup: int | Literal["steady"], ramp_s: float = 0.0
) -> list[RequestTimes]:
    """The times of each request, in the order of arrival. Those during the ramp are of the warm-up,
    and so are `warmup` further ones, or those before the steady part.
    """
    begin = min(timed.request.arrival_s for timed in served)
    ordered = sorted(served, key=lambda timed: timed.request.number)
    ramp = sum(timed.request.arrival_s < begin + ramp_s for timed in served)
    if warmup == "steady":
        warmup = steady_from([one.end_s - one.request.arrival_s for one in ordered[ramp:]])
    return [times(timed, begin, ramp + warmup) for timed in ordered]


def times(timed: TimedRequest, begin: float = 0.0, warmup: int = 0) -> RequestTimes:
    """The times of a request, counted from the moment `begin` and from its own arrival."""
    arrival = timed.request.arrival_s
    further = (timed.new_tokens or 1) - 1
    answer_s: dict[str, Any] = {
        "first_token_at_s": timed.first_token_s - begin,
        "first_token_s": timed.first_token_s - arrival,
        "per_token_s": (timed.end_s - timed.first_token_s) / further if further > 0 else None,
        "total_s": timed.end_s - arrival,
    }
    if timed.failure:
        answer_s = {**dict.fromkeys(answer_s), "failure": timed.failure}
    return RequestTimes(
        request=timed.request.number,
        prompt=timed.request.prompt,
        warmup=timed.request.number < warmup,
        arrival_at_s=arrival - begin,
        start_at_s=timed.start_s - begin,
        end_at_s=timed.end_s - begin,
        new_tokens=timed.new_tokens,
        queued_s=timed.start_s - arrival,
        **{**answer_s, **timed.facts},
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
    every other answer is good. `clients`: of a closed loop, 1 of a rate; they have a steady window.
    `seconds`:
    that the requests took, by default from the first arrival to the last answer.

    Returns: what docs/protocols.md defines.
    """
    counted = [request for request in requests if not request.warmup]
    begin = min(request.arrival_at_s for request in counted)
    seconds = seconds or max(request.end_at_s for request in counted) - begin
    answered = [request for request in counted if not request.failure]
    good = sum(is_good(request, targets or {}) for request in answered)
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


def is_good(request: RequestTimes, targets: Mapping[str, float | None]) -> bool:
    """Whether a request was answered at full length, within the targets."""
    return request.total_s is not None and all(
        limit is None or (getattr(request, key) or 0.0) <= limit for key, limit in targets.items()
    )


def steady_from(seconds: Sequence[float]) -> int:
    """The number of first values to leave out so that the mean of the others is the most precise.

    MSER-5 (White, 1997): of the means of 5 successive values, the first are left out whose absence
    gives the rest the least squared standard error. Half of the values where it would be more, so
    that no steady part was reached.
    """
    means = [statistics.fmean(seconds[i : i + BATCH]) for i in range(0, len(seconds), BATCH)]
    kept = range(max(1, len(means) - BATCH))
    errors = [statistics.pvariance(means[i:]) / (len(means) - i) for i in kept]
    return min(errors.index(min(errors)) * BATCH, len(seconds) // 2)


def steady_window(
    requests: Sequence[RequestTimes], clients: int
) -> tuple[list[RequestTimes], float]:
    """(requests, seconds) of the window in which all clients have a request under way, or requests
    arrive at a rate: from the first arrival after the warm-up to the first answer after the last
    arrival, since then a client has no more to ask. Requests of the warm-up count if they are
    answered in it. None where it has fewer than a request a client.
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
    return Percentiles(
        **{
            f"p{percent}": Percentile(value=value, low=left, high=right)
            for percent, value, left, right in zip(
                PERCENTILES, exact.tolist(), low.tolist(), high.tolist(), strict=True
            )
        }
    )
