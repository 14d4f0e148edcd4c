"""The search of the load protocol: the highest number of clients, and the highest rate, at which a
share of the answers meets the targets.
"""

import math
from collections.abc import Sequence
from typing import Any

from ragauge.config.protocols import LoadSettings
from ragauge.measure.protocols.arrivals import (
    Level,
    TimedRequest,
    Watch,
    is_good,
    times,
)
from ragauge.results.capacity import ARRIVALS, Capacity, capacity
from ragauge.results.times import LoadLevel

PRECISION = 1.1  # ratio of the lowest load that missed the targets to the highest that met them
LEAST = 1 / 16  # loads, in units of the first one, outside which no search goes
MOST = 1024
LASTING = 20  # longest waits for a first token that a level at a rate lasts, at least
CLIENT_REQUESTS = 5  # of each client, at least


def level_at(settings: LoadSettings, **arriving: Any) -> Level:
    """A level at which requests arrive so, with the ramp, duration and conversations of the
    settings.
    """
    shape = settings.model_dump(include={"ramp_s", "duration_s", "turns", "thinking_s"})
    if settings.find:  # which a known number of requests may miss
        del shape["duration_s"]
    return Level(**shape, **arriving)


def requests_of(level: Level, settings: LoadSettings) -> int:
    """The requests of a level, those of a counted warm-up included.

    A search's level at a rate lasts `duration_s`, and at least LASTING times the longest wait for a
    first token: the queue of a rate that is a tenth too high is then longer than the target for
    more than a twentieth of the time. Of clients each asks at least CLIENT_REQUESTS times.
    """
    if level.speed:
        return len(level.moments)
    if not settings.find:
        return settings.requests_of_level
    lasting_s = max(settings.duration_s or 0.0, LASTING * (settings.target_first_token_s or 0.0))
    least = math.ceil((level.rate or 0.0) * lasting_s) + CLIENT_REQUESTS * (level.clients or 0)
    return settings.requests_of_level + max(0, least - settings.requests)


def over_saturation(settings: LoadSettings, level: Level) -> Watch:
    """Return a watch that ends a level of a search once it can no longer meet the targets.

    The level sends no more once more requests have missed the targets (answered late, or failed)
    than may miss of all that it has; those of a warm-up may. Requests under way are still answered.
    """
    requests = requests_of(level, settings)
    warmup = requests // 2 if settings.warmup == "steady" else settings.warmup
    may_miss = warmup + (1 - settings.attainment) * (requests - warmup)
    missed = 0

    def ends(served: Sequence[TimedRequest]) -> bool:
        nonlocal missed
        missed += sum(not is_good(times(timed), settings.targets) for timed in served)
        return missed > may_miss

    return ends


def next_level(settings: LoadSettings, levels: Sequence[LoadLevel], variant: str) -> Level | None:
    """The next level of a variant's search, given those that were measured; None: it has ended.

    First clients, then rates, beginning at the rate of good answers to the highest number of
    clients. Where not one client is served in time, no rate is tried, and nothing after refused
    times.
    """
    if any(not level.summary.requests for level in levels if level.variant == variant):
        return None
    first = 1.0
    for arriving in ARRIVALS:
        found = capacity(levels, variant, arriving, settings.attainment)
        load = _next_load(found, first)
        if load:
            return level_at(settings, **{arriving: load})
        if found.met is None:
            return None
        first = found.levels[found.met].summary.goodput_per_s
    return None


def _next_load(found: Capacity, first: float) -> float | None:
    """Twice or half of a load until one meets the targets and one does not, then their geometric
    mean, until they are within PRECISION or neighbouring numbers of clients (None).
    """
    load = first
    if found.met and found.missed:
        is_close = found.missed / found.met <= PRECISION
        load = 0.0 if is_close else math.sqrt(found.met * found.missed)
    elif found.met:
        load = 2 * found.met
    elif found.missed:
        load = found.missed / 2
    if found.arrivals == "clients":
        load = round(load)
    is_near = LEAST <= load / first <= MOST
    return load if is_near and load not in found.levels else None
