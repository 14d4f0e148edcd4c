"""Positions of parallel paths, by hand and by the formula of section 3.2."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ragauge.prompts import LAYOUTS


def test_equilibrium_by_hand() -> None:
    """Paths of 2 and 6 tokens: S = 2 / (1/2 + 1/6) = 3; steps of 1.5 and 0.5."""
    positions, length = LAYOUTS["equilibrium"]([2, 6], 10)
    assert length == pytest.approx(3)
    assert positions == [pytest.approx([10, 11.5]), pytest.approx([10, 10.5, 11, 11.5, 12, 12.5])]


@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [3, 7, 20], [137] * 20, [1, 400]])
def test_equilibrium_is_the_harmonic_mean(lengths: list[int]) -> None:
    mean = Fraction(len(lengths)) / sum(Fraction(1, n) for n in lengths)
    positions, length = LAYOUTS["equilibrium"](lengths, 39)
    assert length == pytest.approx(float(mean), rel=1e-12)
    for n, path in zip(lengths, positions, strict=True):
        assert path == pytest.approx([float(39 + j * mean / n) for j in range(n)])
        assert path[-1] < 39 + length  # what follows comes after every token


def test_left_aligned_ends_after_the_longest() -> None:
    assert LAYOUTS["left_aligned"]([2, 5, 1], 3) == ([[3, 4], [3, 4, 5, 6, 7], [3]], 5.0)
