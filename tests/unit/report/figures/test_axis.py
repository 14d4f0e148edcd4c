"""Axes that items share, and numbers in their tables."""

import pytest
from matplotlib.figure import Figure

from ragauge.report.figures import axis


def test_large_and_small_numbers_have_a_digit_before_their_exponent():
    ax = Figure().subplots()
    axis.log_axis(ax, [1e9, 5e10])
    said = ax.xaxis.get_major_formatter()
    assert [said(value, 0) for value in (1e10, 2e10, 5e10, 5e-5)] == [
        "$10^{10}$",
        "2e10",
        "5e10",
        "5e-5",
    ]


@pytest.mark.parametrize("which", ["x", "y"])
def test_a_base_2_axis_leaves_the_other_axis_linear(which):
    ax = Figure().subplots()
    axis.Axis("k", "base2").apply(ax, which, [1, 2, 4])
    scaled, other = (ax.xaxis, ax.yaxis) if which == "x" else (ax.yaxis, ax.xaxis)
    assert [text.get_text() for text in scaled.get_ticklabels()] == ["1", "2", "4"]
    assert (scaled.get_scale(), other.get_scale()) == ("log", "linear")


@pytest.mark.parametrize(
    "values", [[0.15], [0.12, 0.19], [0.3, 0.9], [0.08, 2.0], [0.001, 50.0]], ids=str
)
def test_a_logarithmic_axis_has_more_than_one_number(values):
    ax = Figure().subplots()
    ax.plot([min(values) / 1.2, max(values) * 1.2], [0, 0])
    axis.log_axis(ax, values)
    low, high = ax.get_xlim()
    ticks = [at for at in ax.xaxis.get_major_locator()() if low <= at <= high]
    assert len(ticks) >= 2
    assert len({ax.xaxis.get_major_formatter()(at, 0) for at in ticks}) == len(ticks)
