"""The search effort that a latency budget pays for (PipeRAG, section 4.3, performance-driven retrieval).

Effort is the parameter by which an index type trades time for recall: nprobe of IVF, efSearch of HNSW. Latency is
linear in it: for IVF a constant for encoding the query and comparing it with all centroids, and a slope for each list
scanned. The line is fitted to measured searches; a budget then buys the largest effort that the line predicts to fit.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ragauge.errors import UserError


@dataclass(frozen=True)
class SearchTime:
    """Predicted seconds of one search as a function of effort."""

    intercept_s: float  # at effort 0
    slope_s: float  # of each further unit of effort
    error: float = 0.0  # median of |predicted - measured| / measured over the points of the fit

    def __call__(self, effort: float) -> float:
        """Predicted seconds."""
        return self.intercept_s + self.slope_s * effort


def fit_line(effort: Sequence[float], seconds: Sequence[float]) -> SearchTime:
    """Least squares with neither part below zero: more effort is never faster, and no time is negative.

    Args:
        effort: of each measured search; at least two different values.
        seconds: its time.

    Raises:
        UserError: fewer than two different values, lists of different length, or a time that is not above zero.
    """
    import numpy as np

    if len(effort) != len(seconds):
        raise UserError(
            f"a fit of latency on effort needs a time for each effort; got {len(effort)} and {len(seconds)}"
        )
    if len(set(effort)) < 2:
        raise UserError(f"a fit of latency on effort needs two different efforts; got {sorted(set(effort))}")
    x, y = np.asarray(effort, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not (np.isfinite(y) & (y > 0)).all():
        raise UserError("a fit of latency on effort needs times above zero")
    slope, intercept = (float(part) for part in np.polyfit(x, y, 1))
    if slope < 0:
        slope, intercept = 0.0, float(y.mean())
    elif intercept < 0:
        slope, intercept = float((x @ y) / (x @ x)), 0.0
    errors = np.abs(intercept + slope * x - y) / y
    return SearchTime(intercept, slope, statistics.median(errors.tolist()))


def largest_effort(budget_s: float, fit: SearchTime, choices: Sequence[int]) -> int:
    """The largest of the ascending `choices` whose predicted seconds fit the budget; the first if none does.

    A search is never skipped for lack of time: a caller that must not exceed the budget compares `fit(effort)` with it.

    Raises:
        UserError: no choices.
    """
    if not choices:
        raise UserError("no effort to choose from")
    return choices[max(0, bisect_right(choices, budget_s, key=fit) - 1)]
