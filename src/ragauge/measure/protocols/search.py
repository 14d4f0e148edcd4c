"""The search of the load protocol: the highest number of clients, and the highest rate, at which a
share of the answers meets the targets.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.config.protocols import LoadSettings
from ragauge.measure.protocols import arrivals
from ragauge.measure.protocols.arrivals import Level, ScheduledRequest, TimedRequest
from ragauge.results.stats import SHARE, mean_interval
from ragauge.results.times import Arrivals, Capacity, LoadBound, LoadLevel

PRECISION = 1.1  # ratio of the lowest load that missed the targets to the highest that met them
FARTHEST = (1 / 16, 1024)  # loads, in units of the first one, outside which no search goes
LASTING = 20  # longest waits for a first token that a level at a rate lasts, at least
CLIENT_REQUESTS = 5  # of each client, at least

Measure = Callable[[str, Level], LoadLevel]
"""(variant, level) -> the level as measured."""


def search_all(variants: Iterable[str], settings: LoadSettings, measure: Measure) -> list[Capacity]:
    """Search the highest loads of all variants side by side, a level of each in turn, so that a
    machine's slower hours are everybody's. Returns clients and rate of one variant after another.
    """
    searches = {name: _search(name, settings) for name in variants}
    pending = {name: next(search) for name, search in searches.items()}
    found = dict[str, list[Capacity]]()
    while pending:
        for name, level in list(pending.items()):
            try:
                pending[name] = searches[name].send(measure(name, level))
            except StopIteration as end:
                found[name] = end.value
                del pending[name]
    return [capacity for name in searches for capacity in found[name]]


def level_at(settings: LoadSettings, arriving: Arrivals, load: float) -> Level:
    """A rate or a number of clients, with the ramp, duration and conversations of the settings."""
    shape = settings.model_dump(include={"ramp_s", "duration_s", "turns", "thinking_s"})
    if settings.find and arriving == "rate":  # what may miss is a part of a known number
        shape["duration_s"] = None
    loads: dict[str, Any] = {arriving: load}
    return Level(**loads, **shape)


def requests_of(level: Level, settings: LoadSettings) -> int:
    """The requests of a level, those of a counted warm-up included.

    A search's level at a rate lasts at least LASTING times the longest wait for a first token: the
    queue of a rate that is a tenth too high is then longer than the target for more than a
    twentieth of the time. Of clients each asks at least CLIENT_REQUESTS times.
    """
    if level.speed:
        return len(level.moments)
    if not settings.find:
        return settings.requests_of_level
    lasting_s = max(settings.duration_s or 0.0, LASTING * (settings.target_first_token_s or 0.0))
    least = math.ceil((level.rate or 0.0) * lasting_s) + CLIENT_REQUESTS * (level.clients or 0)
    return settings.requests_of_level + max(0, least - settings.requests)


@dataclass
class OverSaturation:
    """Ends a level of a search that can no longer meet the targets, as its queue grows.

    A request has missed them if it failed or was answered late, or if it is under way for longer
    than both targets together allow. The level sends no more once more requests have missed than
    may miss of all that it has; those of a warm-up may. Requests under way are still answered.
    """

    settings: LoadSettings
    level: Level
    requests: int
    missed: int = 0
    begin_s: float = math.inf

    def ends(
        self,
        served: Sequence[TimedRequest],
        open_requests: Collection[ScheduledRequest],
        now: float,
    ) -> bool:
        """See `arrivals.Watch`."""
        settings = self.settings
        seen = [*open_requests, *(timed.request for timed in served)]
        self.begin_s = min([self.begin_s, *(request.arrival_s for request in seen)])
        ramped_s = self.begin_s + self.level.ramp_s
        first_s, token_s = (limit or math.inf for limit in settings.targets.values())
        longest_s = first_s + sum([token_s] * (settings.new_tokens - 1))
        self.missed += sum(
            timed.request.arrival_s >= ramped_s
            and not arrivals.is_good(arrivals.times(timed), settings.targets)
            for timed in served
        )
        late = sum(ramped_s <= request.arrival_s < now - longest_s for request in open_requests)
        warmup = settings.requests_of_level - settings.requests
        if settings.warmup == "steady":
            warmup = self.requests // 2
        may_miss = warmup + (1 - settings.attainment) * (self.requests - warmup)
        return not self.level.duration_s and self.missed + late > may_miss


def _search(variant: str, settings: LoadSettings) -> Generator[Level, LoadLevel, list[Capacity]]:
    """Yield levels, each sent back as measured: first clients, then rates, beginning at the rate of
    good answers to the highest number of clients. Where not one client is served in time, no rate
    is tried.
    """
    clients = yield from _search_one(variant, settings, "clients", 1)
    if clients.met is None:
        return [clients, Capacity(variant=variant, arrivals="rate", refused=clients.refused)]
    rates = yield from _search_one(variant, settings, "rate", clients.met.goodput_per_s)
    return [clients, rates]


def _search_one(
    variant: str, settings: LoadSettings, arriving: Arrivals, first: float
) -> Generator[Level, LoadLevel, Capacity]:
    """Double or halve a load until one meets the targets and one does not, then bisect on a
    geometric scale until they are within PRECISION, or are neighbouring numbers of clients.
    """
    met: LoadBound | None = None
    missed: LoadBound | None = None
    refused: str | None = None
    load = first
    lowest, highest = (first * times for times in FARTHEST)
    while lowest <= load <= highest and refused is None:
        level = yield level_at(settings, arriving, load)
        bound = _bound(load, level)
        if bound is None:
            refused = level.refused
        elif bound.good_share >= settings.attainment:
            met = bound
        else:
            missed = bound
        load = _next_load(met, missed, load)
        if arriving == "clients":
            load = round(load)
        if (
            met
            and missed
            and (missed.load / met.load <= PRECISION or load in (met.load, missed.load))
        ):
            break
    return Capacity(variant=variant, arrivals=arriving, met=met, missed=missed, refused=refused)


def _next_load(met: LoadBound | None, missed: LoadBound | None, load: float) -> float:
    if met and missed:
        return math.sqrt(met.load * missed.load)
    return load / 2 if missed else 2 * load


def _bound(load: float, level: LoadLevel) -> LoadBound | None:
    """The share of good answers at a load; None where its times were refused."""
    summary = level.summary
    if not summary.requests:
        return None
    good = round(summary.good_share * summary.requests)
    shares = [1.0] * good + [0.0] * (summary.requests - good)
    low, high = mean_interval(shares, limits=SHARE)
    assert low is not None
    assert high is not None
    return LoadBound(
        load=load,
        good_share=summary.good_share,
        low=low,
        high=high,
        requests=summary.requests,
        goodput_per_s=summary.goodput_per_s,
    )
