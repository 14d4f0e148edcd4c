"""Intervals, tests and frontiers against scipy, exact enumeration and cases with a known answer."""

import itertools

import numpy as np
import pytest
from scipy import stats as scipy_stats

from ragauge.results.cells import NO_SPREAD, mean
from ragauge.results.stats import (
    SHARE,
    doubts,
    frontier_probability,
    mean_interval,
    mean_ratio_interval,
    median_ratio_interval,
    paired_test,
    pooled,
)


@pytest.mark.parametrize("questions", [4, 20, 900])
def test_without_limits_the_interval_is_students(questions):
    values = np.random.default_rng(questions).gamma(3, 50, questions)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval()
    width = expected.high - expected.low
    assert mean_interval(values) == pytest.approx((expected.low, expected.high), abs=0.02 * width)


@pytest.mark.parametrize(("right", "n"), [(1, 5), (3, 20), (10, 20), (49, 50), (88, 300)])
def test_a_proportion_has_clopper_and_pearsons_interval(right, n):
    expected = scipy_stats.binomtest(right, n).proportion_ci(method="exact")
    interval = mean_interval([1] * right + [0] * (n - right), limits=SHARE)
    assert interval == pytest.approx((expected.low, expected.high), abs=0.003)


@pytest.mark.parametrize("seed", range(3))
def test_other_scores_have_the_quantiles_of_dirichlet_weights(seed):
    rng = np.random.default_rng(seed)
    values = np.round(rng.beta(0.4, 0.6, 25), 1)
    weights = rng.dirichlet([1] * 25 + [0.5], 40_000)
    ends = [weights @ [*values, limit] for limit in SHARE]
    expected = np.quantile(ends[0], 0.025), np.quantile(ends[1], 0.975)
    assert mean_interval(values, limits=SHARE) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("seed", range(40))
def test_a_paired_interval_excludes_zero_only_where_the_sign_test_does(seed):
    rng = np.random.default_rng(seed)
    wins, losses, ties = (int(count) for count in rng.integers(0, [14, 5, 80]))
    values = [1] * wins + [-1] * losses + [0] * (ties + 1)
    test = paired_test(np.maximum(values, 0), np.maximum(np.negative(values), 0), limits=SHARE)
    exact = scipy_stats.binomtest(wins, max(1, wins + losses)).pvalue if wins + losses else 1.0
    assert test["p"] == pytest.approx(exact, abs=0.015)
    if test["low"] > 0 or test["high"] < 0:
        assert exact < 0.055
    elif exact < 0.01:
        assert wins + losses == 0


@pytest.mark.parametrize("values", [[], [np.nan], [1, np.inf], [[1]]])
def test_no_interval_of_nothing(values):
    with pytest.raises(ValueError, match="at least one finite number"):
        mean_interval(values)


def exact_p(differences):
    signs = np.array(list(itertools.product([-1, 1], repeat=len(differences))))
    return float((np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean())


@pytest.mark.parametrize(
    "a", [[1, 1, 1, 1, 1, 1, 0, 0], [0.9, 0.2, 0.4, 0.4, 0.1, 0.7, 0.3, 0.8], [0] * 8]
)
def test_p_is_that_of_all_sign_flips(a):
    b = [0.1, 0.0, 0.5, 0.2, 0.0, 0.1, 0.0, 0.4]
    assert paired_test(a, b)["p"] == pytest.approx(exact_p(np.array(a) - np.array(b)), abs=0.015)


@pytest.mark.parametrize("n", [1, 4, 7, 33, 300])
def test_the_interval_of_equal_scores_is_scipys(n):
    for right in (0, n):
        expected = scipy_stats.binomtest(right, n).proportion_ci(method="exact")
        interval = mean_interval([float(right == n)] * n, limits=SHARE)
        assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_equal_values_without_limits_or_beyond_them_have_no_interval():
    assert mean_interval([700.0] * 3) == (None, None)
    assert mean_interval([70.0] * 3, limits=SHARE) == (None, None)
    assert paired_test([2.5, 2.5], [2.4, 2.4])["low"] is None
    assert median_ratio_interval([2.0], [1.0]) == (None, None)
    assert mean([7.0, 7.0], 0, "a note").note == f"a note; {NO_SPREAD}"


def test_methods_of_other_questions_are_not_paired():
    with pytest.raises(ValueError, match="a has 2 questions, b 3"):
        paired_test([1, 0], [1, 0, 1])


def test_frontier_of_clear_cases():
    good = np.ones(20)
    bad = np.zeros(20)
    apart = frontier_probability([1, 2, 3], [bad, good, bad])
    np.testing.assert_allclose(apart, [1, 1, 0], atol=1e-6)
    alike = frontier_probability([1, 2, 3], [good, good, good])
    np.testing.assert_allclose(alike, [1, 0, 0], atol=1e-6)


def test_a_probability_is_no_surer_than_the_sign_test_of_the_questions_that_differ():
    """Five of 100 questions are won and none is lost: half of the sign test's p is 1/32."""
    won = np.array([1.0] * 5 + [0.0] * 95)
    assert frontier_probability([1, 2], [0 * won, won])[1] == 1 - 0.5**6
    assert frontier_probability([1, 2], [won, 0 * won])[1] == 0.5**6
    assert doubts([won, 0 * won, won])[0] == pytest.approx([0.5**101, 0.5**6, 0.5**101])


@pytest.mark.parametrize(
    ("costs", "chances"), [([1, 2], [1, 1 - 0.9**10]), ([1, 1 + 1e-15], [0.9**10, 0.75])]
)
def test_frontier_probability_is_that_of_the_binomial(costs, chances):
    """A dearer method is on the frontier where it wins on one more of the resampled questions; at
    one cost they tie, and one question that differs leaves a doubt of a quarter.
    """
    worse = np.zeros(10)
    better = np.array([1.0] + [0.0] * 9)
    np.testing.assert_allclose(frontier_probability(costs, [worse, better]), chances, atol=0.02)


def test_a_ratio_of_means_is_of_pairs_and_one_of_medians_is_not():
    a = [2.0, 4.0, 8.0]
    b = [1.0, 2.0, 4.0]
    assert mean_ratio_interval(a, b) == (None, None)  # every question's ratio is 2
    low, high = median_ratio_interval(a, b)
    assert low is not None
    assert high is not None
    assert low < 2.0 < high


def test_a_pooled_mean_counts_tokens_and_equal_counts_change_nothing():
    """By hand: (2.0 * 10 + 5.0 * 30) / 40 = 4.25; terms 4.25 + (2 - 4.25) / 2 and 4.25 + (5 - 4.25)
    * 1.5.
    """
    assert pooled([2.0, 5.0], [10, 30]) == pytest.approx([3.125, 5.375])
    assert pooled([2.0, 5.0], [7, 7]) == pytest.approx([2.0, 5.0])
