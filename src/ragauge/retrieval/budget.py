"""How many lists of the index a latency budget pays for (PipeRAG, section 4.3, performance-driven retrieval).

The latency of an IVF search is a line in nprobe: a constant for reading the query and comparing it with all centroids,
and a slope for each list that is scanned. The line is fitted to measured searches; a budget then chooses the largest
nprobe that the line says it pays for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragauge.errors import UserError


@dataclass(frozen=True)
class Line:
    """Predicted seconds of one search as a function of nprobe."""

    intercept_s: float  # at nprobe 0
    slope_s: float  # of each list more
    error: float = 0.0  # median of |predicted - measured| / measured over the points of the fit

    def __call__(self, nprobe: float) -> float:
        """Predicted seconds."""
        return self.intercept_s + self.slope_s * nprobe


def fit_line(nprobe: Sequence[float], seconds: Sequence[float]) -> Line:
    """Least squares with neither part below zero: more lists are never faster, and nothing takes less than no time.

    Args:
        nprobe: of each measured search; at least two different values.
        seconds: that it took.

    Raises:
        UserError: fewer than two different values, lists of different length, or a time that is not above zero.
    """
    import numpy as np

    if len(nprobe) != len(seconds):
        raise UserError(
            f"a fit of latency on nprobe needs a time for each nprobe; got {len(nprobe)} and {len(seconds)}"
        )
    if len(set(nprobe)) < 2:
        raise UserError(f"a fit of latency on nprobe needs two different nprobe; got {sorted(set(nprobe))}")
    x, y = np.asarray(nprobe, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not (np.isfinite(y) & (y > 0)).all():
        raise UserError("a fit of latency on nprobe needs times above zero")
    slope, intercept = (float(part) for part in np.polyfit(x, y, 1))
    if slope < 0:
        slope, intercept = 0.0, float(y.mean())
    elif intercept < 0:
        slope, intercept = float((x @ y) / (x @ x)), 0.0
    errors = np.abs(intercept + slope * x - y) / y
    return Line(intercept, slope, statistics.median(errors.tolist()))


def largest_nprobe(budget_s: float, fit: Line, choices: Iterable[int]) -> int:
    """The largest of `choices` whose predicted seconds fit the budget; the smallest where none does.

    A search is never left out for want of time: who must not exceed the budget compares `fit(nprobe)` with it.

    Raises:
        UserError: no choices.
    """
    known = sorted(set(choices))
    if not known:
        raise UserError("no nprobe to choose from")
    return max((nprobe for nprobe in known if fit(nprobe) <= budget_s), default=known[0])
