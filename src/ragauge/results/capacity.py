"""The highest load at which a variant met the targets, and the lowest at which it did not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ragauge.results.stats import SHARE, mean_interval
from ragauge.results.times import LoadLevel, LoadTimes

ARRIVALS = ("clients", "rate")  # keys of a level, in the order in which a search raises them


@dataclass(frozen=True)
class Capacity:
    """The loads between which a variant's highest one is."""

    variant: str
    arrivals: str
    met: float | None  # the highest that met the targets; None: none did
    missed: float | None  # the lowest that missed them
    levels: Mapping[float, LoadLevel]  # by load

    def described(self) -> str:
        """Say which loads met and missed the targets, and how many of their answers did."""
        parts = []
        for word, load in (("met", self.met), ("missed", self.missed)):
            if load:
                summary = self.levels[load].summary
                good = round(summary.good_share * summary.requests)
                shares = [1.0] * good + [0.0] * (summary.requests - good)
                low, high = mean_interval(shares, limits=SHARE)
                share = (
                    f"{good} of {summary.requests} answers, 95% interval {low:.0%} to {high:.0%}"
                )
                parts.append(f"targets {word} at {self.arrivals} = {load:.3g} ({share})")
        return "; ".join(parts)


def capacity(
    levels: Sequence[LoadLevel], variant: str, arrivals: str, attainment: float
) -> Capacity:
    """The capacity of a variant, by the levels at which a share of its answers met the targets.
    Refused levels, and those of other arrivals, say nothing.
    """
    loads = {
        level.load: level
        for level in levels
        if level.variant == variant and level.summary.requests and getattr(level, arrivals)
    }
    met = {load for load, level in loads.items() if level.summary.good_share >= attainment}
    lowest = min(loads.keys() - met, default=None)
    return Capacity(variant, arrivals, max(met, default=None), lowest, loads)


def capacities(times: LoadTimes) -> list[Capacity]:
    """The capacities of each variant of a file whose answers had targets."""
    if not times.protocol.limits:
        return []
    variants = dict.fromkeys(level.variant for level in times.levels)
    found = [
        capacity(times.levels, variant, arrivals, times.protocol.attainment)
        for variant, arrivals in product(variants, ARRIVALS)
    ]
    return [one for one in found if one.levels]
