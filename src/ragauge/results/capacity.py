"""The highest load at which a variant met the targets, and the lowest at which it did not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ragauge.results.stats import SHARE, Interval, mean_interval
from ragauge.results.times import LoadLevel, LoadTimes, RequestSummary

Arrivals = Literal["clients", "rate"]  # a key of a level
ARRIVALS: tuple[Arrivals, ...] = ("clients", "rate")


@dataclass(frozen=True)
class Capacity:
    """The loads between which a variant's highest one is."""

    variant: str
    arrivals: Arrivals
    met: float | None  # the highest that met the targets; None: none did
    missed: float | None  # the lowest that missed them
    levels: Mapping[float, LoadLevel]  # by load

    def described(self) -> str:
        """Say which loads met and missed the targets, and how many of their answers did."""
        parts = []
        unit = "clients" if self.arrivals == "clients" else "questions/s"
        for word, load in (("met", self.met), ("missed", self.missed)):
            if load:
                summary = self.levels[load].summary
                low, high = good_interval(summary)
                share = f"{summary.good_share:.0%} of {summary.requests} answers"
                interval = f"95% interval {low:.0%} to {high:.0%}"
                parts.append(f"{load:.3g} {unit} {word} the targets ({share}, {interval})")
        return "; ".join(parts)


def good_interval(summary: RequestSummary) -> Interval:
    """The 95% interval of the share of good answers (Clopper and Pearson, 1934)."""
    good = round(summary.good_share * summary.requests)
    return mean_interval([1.0] * good + [0.0] * (summary.requests - good), limits=SHARE)


def capacity(
    levels: Sequence[LoadLevel], variant: str, arrivals: Arrivals, attainment: float
) -> Capacity:
    """The capacity of a variant, by the levels at which a share of its answers met the targets.
    Refused levels, and those of other arrivals, say nothing.
    """
    loads = {
        getattr(level, arrivals): level
        for level in levels
        if level.variant == variant and getattr(level, arrivals) and level.summary.requests
    }
    met = {load for load, level in loads.items() if level.summary.good_share >= attainment}
    lowest = min(loads.keys() - met, default=None)
    return Capacity(variant, arrivals, max(met, default=None), lowest, loads)


def capacities(times: LoadTimes) -> Iterator[Capacity]:
    """The capacities of each variant of a file whose answers had targets."""
    attainment = times.protocol.attainment
    for variant in dict.fromkeys(level.variant for level in times.levels):
        for arrivals in ARRIVALS if times.protocol.limits else ():
            found = capacity(times.levels, variant, arrivals, attainment)
            if found.levels:
                yield found
