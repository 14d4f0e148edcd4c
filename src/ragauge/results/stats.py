"""Uncertainty as part of a number: intervals, paired tests, and the chance of being on the
frontier.

Everywhere `seed` is that of the random draws and `n` their number. Equal values without known
limits have no interval: (None, None). `reports/coverage.py` simulates how often intervals hold the
true value.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ragauge.io.jsonl import JsonObject

RESAMPLES = 10_000
LEVEL = 0.95  # the share of resampled values inside an interval
SHARE = (0.0, 1.0)  # limits of a score from wrong to right
_DRAWS_AT_ONCE = 4_000_000  # bounds memory: 32 MB of indices
_FEW = 30  # distinct scores; of fewer more weights are drawn in the same time

Limits: TypeAlias = tuple[float, float]  # the least and the greatest value that is possible
Interval: TypeAlias = tuple[float | None, float | None]  # both None: not known


def mean_interval(
    values: ArrayLike, seed: int = 0, n: int = RESAMPLES, limits: Limits | None = None
) -> Interval:
    """Interval of the mean of (question,) scores: of a proportion Clopper and Pearson's (1934), of
    other scores between limits its generalisation (Gaffke, 2005), without limits Student's t.

    Each end is a quantile of the mean over random (Dirichlet) weights of the questions and of one
    more, unseen, whose score is the limit at that end. Of scores of 0 and 1 these means have the
    Beta distributions of Clopper and Pearson. Of scores between the limits half an unseen question
    counts, as in mid-P intervals: a whole one makes intervals too wide.

    Args:
        values: (question,) scores.
        limits: the least and the greatest possible score; None if they are not known.

    Returns:
        The two ends, of which the first is below the second; two None where all scores are equal
        and the limits are unknown or exclude the score.

    Raises:
        ValueError: there is no score or one is not finite.
    """
    scores = _checked(values, "values")
    tail = (1 - LEVEL) / 2
    rng = np.random.default_rng(seed)
    points, counts = np.unique(scores, return_counts=True)
    if limits is None or not limits[0] <= points[0] <= points[-1] <= limits[1]:
        if points[-1] - points[0] <= _slack(scores):
            return None, None
        error = scores.std(ddof=1) / len(scores) ** 0.5
        width = float(error * np.quantile(abs(rng.standard_t(len(scores) - 1, n)), LEVEL))
        mean = float(scores.mean())
        return mean - width, mean + width
    if len(points) == 1:  # the weights of other scores have the distribution Beta(1, questions)
        others = 1 - tail ** (1 / len(scores))
        low, high = (float(scores[0] + others * (end - scores[0])) for end in limits)
        return low, high
    shapes = [*counts, 1.0 if {*points} <= {*limits} else 0.5]
    chunks = _chunks(n * max(1, _FEW // len(shapes)), len(shapes))
    weights = (rng.standard_gamma(shapes, (size, len(shapes))) for size in chunks)
    means = [(w[:, :-1] @ points + np.outer(limits, w[:, -1])) / w.sum(axis=1) for w in weights]
    lows, highs = np.concatenate(means, axis=1)
    return float(np.quantile(lows, tail)), float(np.quantile(highs, 1 - tail))


def pooled(values: ArrayLike, tokens: ArrayLike) -> list[float]:
    """Means over tokens of each text (text,) such that their plain mean is the mean over the tokens
    of all texts. The mean over tokens is a ratio of two sums over texts; these are its linearised
    terms (Cochran, 1977, section 6.4), so that resampling them gives its interval. With equal
    counts they are the values.
    """
    means = _checked(values, "values")
    counts = _checked(tokens, "tokens")
    mean = float((means * counts).sum() / counts.sum())
    terms: list[float] = (mean + (means - mean) * counts / counts.mean()).tolist()
    return terms


def paired_test(
    a: ArrayLike,
    b: ArrayLike,
    seed: int = 0,
    n: int = RESAMPLES,
    limits: Limits | None = None,
) -> JsonObject:
    """The difference of two methods on the same questions, by their (question,) scores, and whether
    it is significant.

    Returns `difference` (mean of a - b), `low` and `high` (its interval, as `mean_interval` has it
    for differences of scores of these limits, extended to 0 where p is not below 0.05), `p`
    (two-sided, from `n` random flips of the differences' signs; never 0, since the observed signs
    count as one of the flips) and `n` (questions).

    Raises:
        ValueError: the two differ in length, are empty or hold a value that is not finite.
    """
    first = _checked(a, "a")
    second = _checked(b, "b")
    if len(first) != len(second):
        raise ValueError(
            f"a has {len(first)} questions, b {len(second)}; a paired test needs the same ones"
        )
    differences = first - second
    extremes = limits and (limits[0] - limits[1], limits[1] - limits[0])
    low, high = mean_interval(differences, seed, n, extremes)
    rng = np.random.default_rng(seed)
    extreme = 0
    # sums in another order differ by rounding
    slack = 1e-12 * max(1.0, float(np.abs(differences).sum()))
    for size in _chunks(n, len(differences)):
        signs = rng.integers(0, 2, (size, len(differences)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ differences) >= abs(differences.sum()) - slack).sum())
    p = (1 + extreme) / (1 + n)
    if low is not None and high is not None and p >= 1 - LEVEL:
        low = min(low, 0.0)
        high = max(high, 0.0)
    return {
        "difference": float(differences.mean()),
        "low": low,
        "high": high,
        "p": p,
        "n": len(differences),
    }


def mean_ratio_interval(a: ArrayLike, b: ArrayLike, seed: int = 0) -> Interval:
    """Interval of mean(a) / mean(b), of the same questions (question,), all b above 0: that of each
    question's ratio, pooled with b as its weight.
    """
    bottoms = _checked(b, "b")
    return mean_interval(pooled(_checked(a, "a") / bottoms, bottoms), seed)


def median_ratio_interval(a: ArrayLike, b: ArrayLike, seed: int = 0) -> Interval:
    """Interval of median(a) / median(b), both (trial,), which are resampled apart."""
    rng = np.random.default_rng(seed)
    tops, bottoms = (
        np.concatenate(
            [np.median(trials[rows], axis=1) for rows in _resamples(rng, len(trials), RESAMPLES)]
        )
        for trials in (_checked(a, "a"), _checked(b, "b"))
    )
    return percentile_interval(tops / bottoms)


def frontier_probability(costs: ArrayLike, values: ArrayLike, seed: int = 0) -> np.ndarray:
    """(method,) probabilities that each method is on the frontier of cost and quality, over
    resampled questions. A method is on the frontier unless another one is at least as cheap and at
    least as good, and better in one of the two. Costs are known ones (method,), lower is better;
    values are (method, question), higher is better. Where others are as cheap, no probability is
    surer than `doubts` of any of them allows.
    """
    quality = np.asarray(values, dtype=float)
    price = np.asarray(costs, dtype=float)
    rng = np.random.default_rng(seed)
    on = np.zeros(len(quality))
    for rows in _resamples(rng, quality.shape[1], RESAMPLES, width=2 * len(quality)):
        on += _on_frontier(price[:, None], quality[:, rows].mean(axis=2)).sum(axis=1)
    rivals = price[:, None] - price >= -_slack(price)
    np.fill_diagonal(rivals, False)
    doubt = doubts(quality)
    least = np.min(doubt, axis=1, where=rivals, initial=0.5)
    most = np.max(doubt, axis=1, where=rivals, initial=0.0)
    return np.clip(on / RESAMPLES, least, 1 - most)


def doubts(values: ArrayLike) -> np.ndarray:
    """(method, other) probability that a method which is ahead on every one of the d questions on
    which the two differ is not the better one: 0.5^(d + 1), of a win probability that is uniform
    beforehand. Methods that never differ have the doubt of all questions. Values are (method,
    question).
    """
    quality = np.asarray(values, dtype=float)
    differing = (quality[:, None] != quality).sum(axis=2)
    return np.asarray(0.5 ** (1.0 + np.where(differing, differing, quality.shape[1])))


def detectable_difference(n: int) -> float:
    """The least difference of two methods' mean scores that n paired questions tell from chance at
    95%. For scores of 0 and 1 of which half the questions favour one of the two: less where methods
    agree more often.
    """
    return min(1.0, 1.96 * (0.5 / n) ** 0.5)


def resampled_means(
    values: ArrayLike | Sequence[ArrayLike], seed: int = 0, n: int = RESAMPLES
) -> np.ndarray:
    """(method, resample) means of the (method, question) scores over the same resampled questions,
    so that they can be paired.
    """
    quality = np.asarray(values, dtype=float)
    rng = np.random.default_rng(seed)
    portions = _resamples(rng, quality.shape[1], n, width=len(quality))
    return np.concatenate([quality[:, rows].mean(axis=2) for rows in portions], axis=1)


def percentile_interval(resampled: np.ndarray) -> Interval:
    """The percentiles that hold `LEVEL` of the resampled values; two None where they are equal."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return (float(low), float(high)) if high - low > _slack(resampled) else (None, None)


def _on_frontier(price: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """(method, resample) bool: no other method dominates this one; `price` is (method, 1),
    `quality` (method, resample).
    """
    cheaper = price[:, None] - price[None]
    better = quality[None] - quality[:, None]  # (method, other, resample)
    # positive: the other is ahead
    no_worse = (cheaper >= -_slack(price)) & (better >= -_slack(quality))
    strictly_better = (cheaper > _slack(price)) | (better > _slack(quality))
    return ~(no_worse & strictly_better).any(axis=1)


def _slack(values: np.ndarray) -> float:
    return 1e-12 * max(1.0, float(np.abs(values).max()))  # for rounding


def _resamples(
    rng: np.random.Generator, questions: int, n: int, width: int = 1
) -> Iterator[np.ndarray]:
    """Question indices (resample, question) of n resamples, in portions; `width` values are held
    for each.
    """
    for size in _chunks(n, questions * width):
        yield rng.integers(0, questions, (size, questions))


def _chunks(n: int, width: int) -> Iterator[int]:
    at_once = max(1, _DRAWS_AT_ONCE // width)
    yield from (min(at_once, n - start) for start in range(0, n, at_once))


def _checked(values: ArrayLike | Sequence[float], name: str) -> np.ndarray:
    scores = np.asarray(values, dtype=float)
    if scores.ndim != 1 or scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError(f"{name} must be a list of at least one finite number")
    return scores
