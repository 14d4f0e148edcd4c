"""The line of latency on nprobe, by which a budget chooses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.pipelines.retrieval.retriever import LinearTime, fit_line

CHOICES = (1, 2, 4, 8, 16, 32, 64)


def test_the_error_is_the_median_of_the_relative_ones():
    # 2.5 n - 2 would begin below zero: (1 + 4 + 18) / 14 n
    fit = fit_line([(1, 1.0), (2, 2.0), (3, 6.0)])
    assert (fit.intercept_s, fit.slope_s) == pytest.approx((0.0, 23 / 14))
    assert fit.error == pytest.approx(9 / 14)


@given(
    st.lists(
        st.tuples(st.sampled_from(CHOICES), st.floats(1e-6, 10)), min_size=2, max_size=30
    ).filter(lambda points: len({n for n, _ in points}) > 1)
)
def test_neither_part_is_below_zero_and_the_fit_beats_every_constant(
    points,
):
    fit = fit_line(points)
    assert min(fit.intercept_s, fit.slope_s) >= 0
    mean = sum(s for _, s in points) / len(points)
    squares = sum((fit(n) - s) ** 2 for n, s in points)
    assert squares <= sum((mean - s) ** 2 for _, s in points) * (1 + 1e-9) + 1e-12


def test_measured_times_that_fall_give_a_constant():
    assert fit_line([(1, 0.2), (64, 0.1)]) == LinearTime(
        pytest.approx(0.15), 0.0, pytest.approx(0.375)
    )
    assert fit_line([(256, 0.3), (256, 0.1), (256, 0.2)]) == LinearTime(
        pytest.approx(0.2), 0.0, pytest.approx(1 / 3)
    )
