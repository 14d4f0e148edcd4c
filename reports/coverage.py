"""How often the 95% intervals of `ragauge.results.stats` hold the true value.

    python reports/coverage.py

Writes coverage.csv. A proportion's coverage is a sum over all numbers of right answers, without
chance but for the resampling; that of paired differences is over 4,000 drawn samples (standard
error 0.35 points). `bootstrap_alone` is the coverage without the exact interval of equal scores.
"""

import csv
from collections import Counter
from collections.abc import Mapping
from functools import cache
from math import comb
from pathlib import Path

import numpy as np

from ragauge.results.stats import SHARE, Interval, bootstrap_interval

OUT = Path(__file__).with_name("coverage.csv")
QUESTIONS = (5, 10, 20, 50, 100, 300)
PROPORTIONS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
PAIRS = ((0.05, 0.05), (0.1, 0.0), (0.15, 0.05), (0.3, 0.1), (0.6, 0.1))  # P(+1), P(-1)
SAMPLES = 4000


@cache
def interval(wins: int, losses: int, questions: int, is_paired: bool) -> Interval:
    values = np.repeat([1.0, -1.0, 0.0], [wins, losses, questions - wins - losses])
    limits = (-1.0, 1.0) if is_paired else SHARE
    return bootstrap_interval(values, limits=limits)


def coverage(
    chances: Mapping[tuple[int, int], float], truth: float, questions: int, is_paired: bool
) -> tuple[float, float]:
    """The chance that the interval holds the truth, and that it does so by the bootstrap."""
    total = 0.0
    by_bootstrap = 0.0
    for (wins, losses), chance in chances.items():
        low, high = interval(wins, losses, questions, is_paired)
        if low is not None and high is not None and low <= truth <= high:
            total += chance
            if questions not in (wins, losses) and (wins or losses):
                by_bootstrap += chance
    return total, by_bootstrap


def main() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for n in QUESTIONS:
        for p in PROPORTIONS:
            chances = {(k, 0): comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}
            rows.append(("proportion", n, f"{p:g}", *coverage(chances, p, n, False)))
        for up, down in PAIRS:
            drawn = rng.multinomial(n, [up, down, 1 - up - down], SAMPLES)
            counts = Counter((int(wins), int(losses)) for wins, losses, _ in drawn)
            chances = {key: count / SAMPLES for key, count in counts.items()}
            name = f"{up:g} better, {down:g} worse"
            rows.append(("paired difference", n, name, *coverage(chances, up - down, n, True)))
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("kind", "n", "truth", "coverage", "bootstrap_alone"))
        writer.writerows((*row[:3], f"{row[3]:.3f}", f"{row[4]:.3f}") for row in rows)


if __name__ == "__main__":
    main()
