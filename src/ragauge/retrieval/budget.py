"""The nprobe that a latency budget pays for (PipeRAG, section 4.3, performance-driven retrieval).

nprobe trades time for recall: the inverted lists that a search of IVF scans, the candidates that one of HNSW keeps.
Latency is linear in it: for IVF a constant for encoding the query and comparing it with all centroids, and a slope for
each list. The line is fitted to measured searches; a budget then buys the largest nprobe that the line predicts to fit.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchTime:
    """Predicted seconds of one search by nprobe."""

    intercept_s: float  # at nprobe 0
    slope_s: float  # of each further unit of nprobe
    error: float = 0.0  # median of |predicted - measured| / measured over the points of the fit

    def __call__(self, nprobe: float) -> float:
        """Predicted seconds."""
        return self.intercept_s + self.slope_s * nprobe


def fit_line(nprobes: Sequence[float], seconds: Sequence[float]) -> SearchTime:
    """Least squares with neither part below zero: a larger nprobe is never faster, and no time is negative.

    Args:
        nprobes: of each measured search; at least two different values.
        seconds: its time, above zero.
    """
    import numpy as np

    x, y = np.asarray(nprobes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
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
    """
    return choices[max(0, bisect_right(choices, budget_s, key=fit) - 1)]
