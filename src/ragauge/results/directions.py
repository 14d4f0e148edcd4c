"""Verdicts: whether an interval shows an ordering that a paper claims.

The distances to the ends of two rows' intervals add as squares (Newcombe, 1998), those of a ratio
as logarithms, which is mostly wider than a paired test. A verdict needs the interval and, where the
difference was tested, p < 0.05; of answers, also one side of at least `FLOOR`.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import exp, hypot, log
from typing import NamedTuple

from ragauge.results.measures import FLOOR

SIGNIFICANT = 0.05


class Verdict(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "inconclusive"
    AT_FLOOR = "at the floor"


class Difference(NamedTuple):
    """A difference, a ratio, or one side of them, with its 95% interval."""

    value: float
    low: float
    high: float
    p: float | None  # of a paired test
    n: int


def verdict(
    difference: Difference,
    levels: Sequence[float] = (),
    *,
    above: float = 0.0,
    is_lower_better: bool = False,
) -> Verdict:
    """Whether a claim holds that a difference is above a number, or below where lower is better.

    Args:
        levels: quality of the two sides, where the difference is one of quality.
    """
    if levels and max(levels) < FLOOR:
        return Verdict.AT_FLOOR
    is_above = difference.low > above
    is_apart = is_above or difference.high < above
    if not is_apart or (difference.p is not None and difference.p >= SIGNIFICANT):
        return Verdict.UNDECIDED
    return Verdict.DISAGREES if is_above == is_lower_better else Verdict.AGREES


def apart(is_ratio: bool, better: Difference, worse: Difference) -> Difference:
    """The difference or ratio of two rows, as if they were of different questions."""
    scale, back = (log, exp) if is_ratio else (float, float)
    (a, a_low, a_high), (b, b_low, b_high) = (
        map(scale, (side.value, side.low, side.high)) for side in (better, worse)
    )
    low = a - b - hypot(a - a_low, b_high - b)
    high = a - b + hypot(a_high - a, b - b_low)
    return Difference(back(a - b), back(low), back(high), None, better.n)
