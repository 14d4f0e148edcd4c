"""The search nprobe that a latency budget pays for (PipeRAG, section 4.3, performance-driven retrieval).

nprobe is the parameter by which an index type trades time for recall: nprobe of IVF, efSearch of HNSW. Latency is
linear in it: for IVF a constant for encoding the query and comparing it with all centroids, and a slope for each list
scanned. The line is fitted to measured searches; a budget then buys the largest nprobe that the line predicts to fit.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ragauge.errors import UserError


@dataclass(frozen=True)
class SearchTime:
    """Predicted seconds of one search as a function of nprobe."""

    intercept_s: float  # at nprobe 0
    slope_s: float  # of each further unit of nprobe
    error: float = 0.0  # median of |predicted - measured| / measured over the points of the fit

    def __call__(self, nprobe: float) -> float:
        """Predicted seconds."""
        return self.intercept_s + self.slope_s * nprobe


def fit_line(nprobe: Sequence[float], seconds: Sequence[float]) -> SearchTime:
    """Least squares with neither part below zero: more nprobe is never faster, and no time is negative.

    Args:
        nprobe: of each measured search; at least two different values.
        seconds: its time.

    Raises:
        UserError: fewer than two different values, lists of different length, or a time that is not above zero.
    """
    import numpy as np

    if len(nprobe) != len(seconds):
        raise UserError(
            f"a fit of latency on nprobe needs a time for each nprobe; got {len(nprobe)} and {len(seconds)}"
        )
    if len(set(nprobe)) < 2:
        raise UserError(f"a fit of latency on nprobe needs two different nprobes; got {sorted(set(nprobe))}")
    x, y = np.asarray(nprobe, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not (np.isfinite(y) & (y > 0)).all():
        raise UserError("a fit of latency on nprobe needs times above zero")
    slope, intercept = (float(part) for part in np.polyfit(x, y, 1))
    if slope < 0:
        slope, intercept = 0.0, float(y.mean())
    elif intercept < 0:
        slope, intercept = float((x @ y) / (x @ x)), 0.0
    errors = np.abs(intercept + slope * x - y) / y
    return SearchTime(intercept, slope, statistics.median(errors.tolist()))


def largest_nprobe(budget_s: float, fit: SearchTime, choices: Sequence[int]) -> int:
    """The largest of the ascending `choices` whose predicted seconds fit the budget; the first if none does.

    A search is never skipped for lack of time: a caller that must not exceed the budget compares `fit(nprobe)` with it.

    Raises:
        UserError: no choices.
    """
    if not choices:
        raise UserError("no nprobe to choose from")
    return choices[max(0, bisect_right(choices, budget_s, key=fit) - 1)]
