"""How often the 95% intervals of `ragauge.results.stats` hold the true value, and how wide they are.

    python reports/coverage.py

Writes coverage.csv in some minutes on one core. The coverage of proportions is a sum over all
numbers of right answers, without chance but for the draws of an interval; that of other outcomes is
over drawn samples of `SAMPLES` (standard error 0.7 points, and 0.35 for outcomes of 1, 0 and -1,
whose intervals are computed once for each count). Scores like F1 have a mass at 0 and at 1 and are
Beta(2, 3) between; `f1` is their mean, `f1 difference` that of two methods which agree on half of
the questions. Unbounded values, which have Student's interval, have gamma distributions. `student`
and `percentile` are the coverages of the t-interval and of the percentile bootstrap, for
comparison; `width` is the mean width over that of the t-interval.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd

from ragauge.results.stats import (
    SHARE,
    Interval,
    mean_interval,
    paired_test,
    percentile_interval,
    resampled_means,
)

OUT = Path(__file__).with_name("coverage.csv")
QUESTIONS = (5, 10, 20, 50, 100, 300)
PROPORTIONS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
PAIRS = ((0.02, 0.02), (0.05, 0.05), (0.1, 0.0), (0.15, 0.05), (0.3, 0.1), (0.6, 0.1))
MASSES = ((0.8, 0.05), (0.5, 0.1), (0.1, 0.7))  # of F1: P(0) and P(1)
SHAPES = (1, 4, 16)  # of unbounded values, whose skewness is 2, 1 and 0.5
SAMPLES = 1000
DRAWS = 1000  # of an interval, and ten times as many where scores are 1, 0 and -1


def _ours(values: np.ndarray, is_paired: bool) -> Interval:
    if not is_paired:
        return mean_interval(values, n=DRAWS, limits=SHARE)
    test = paired_test(np.maximum(values, 0), np.maximum(-values, 0), n=DRAWS, limits=SHARE)
    return test["low"], test["high"]


METHODS: Mapping[str, Callable[[np.ndarray, bool], Interval]] = {
    "coverage": _ours,
    "student": lambda values, _: mean_interval(values, n=DRAWS),
    "percentile": lambda values, _: percentile_interval(resampled_means([values], n=DRAWS)),
}


def intervals(values: np.ndarray, is_paired: bool) -> np.ndarray:
    """The interval of each method (method, end); one without spread is the mean alone."""
    found = [method(values, is_paired) for method in METHODS.values()]
    ends = np.array(found, dtype=float)
    return np.where(np.isnan(ends), values.mean(), ends)


@cache
def of_counts(wins: int, losses: int, questions: int, is_paired: bool) -> np.ndarray:
    ties = questions - wins - losses
    return intervals(np.repeat([1.0, -1.0, 0.0], [wins, losses, ties]), is_paired)


def measured(found: Sequence[np.ndarray], chances: np.ndarray, truth: float) -> list[str]:
    """The columns of a row from the intervals of each sample and its chance."""
    lows, highs = np.moveaxis(np.array(found), -1, 0)
    holds = chances @ ((lows - 1e-9 <= truth) & (truth <= highs + 1e-9))
    ours, students, _ = chances @ (highs - lows)
    return [f"{share:.3f}" for share in (*holds, ours / students)]


def counted(
    counts: Mapping[tuple[int, int], float], n: int, is_paired: bool, truth: float
) -> list[str]:
    found = [of_counts(*wins_and_losses, n, is_paired) for wins_and_losses in counts]
    return measured(found, np.array(list(counts.values())), truth)


def drawn(values: np.ndarray, is_paired: bool, truth: float) -> list[str]:
    """Of samples (sample, question)."""
    found = [intervals(sample, is_paired) for sample in values]
    return measured(found, np.full(len(values), 1 / len(values)), truth)


def main() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for n in QUESTIONS:
        for p in PROPORTIONS:
            binomial = {(k, 0): comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}
            rows.append(("proportion", n, f"{p:g}", *counted(binomial, n, False, p)))
        for up, down in PAIRS:
            sampled = rng.multinomial(n, [up, down, 1 - up - down], 4 * SAMPLES)
            counts = Counter((int(wins), int(losses)) for wins, losses, _ in sampled)
            chances = {key: count / (4 * SAMPLES) for key, count in counts.items()}
            name = f"{up:g} better, {down:g} worse"
            rows.append(("paired difference", n, name, *counted(chances, n, True, up - down)))
        for zero, one in MASSES:
            kinds = rng.choice(3, (3, SAMPLES, n), p=[zero, one, 1 - zero - one])
            scores = np.where(kinds == 2, rng.beta(2, 3, kinds.shape), kinds)
            mean = one + 0.4 * (1 - zero - one)
            name = f"{zero:g} at 0, {one:g} at 1"
            rows.append(("f1", n, name, *drawn(scores[0], False, mean)))
            differ = rng.random((SAMPLES, n)) < 0.5
            rows.append(
                ("f1 difference", n, name, *drawn((scores[1] - scores[2]) * differ, True, 0.0))
            )
    rng = np.random.default_rng(1)
    for n in QUESTIONS:
        for shape in SHAPES:
            values = rng.gamma(shape, size=(SAMPLES, n)) + 1  # beyond the limits of a score
            rows.append(("unbounded", n, f"gamma, shape {shape}", *drawn(values, False, shape + 1)))
    columns = ["kind", "n", "truth", *METHODS, "width"]
    pd.DataFrame(rows, columns=columns).to_csv(OUT, index=False)


if __name__ == "__main__":
    main()
