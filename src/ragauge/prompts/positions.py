"""Positions of the tokens of parallel paths (Superposition Prompting, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragauge.prompts.graph import unit_steps

Positions = tuple[list[list[float]], float]
"""The positions of each path's tokens, and the length that all paths together take up."""


def equilibrium(lengths: Sequence[int], start: float) -> Positions:
    """Stretch or squeeze each path to the harmonic mean of the paths' lengths, S = n / sum(1 / |d_i|).

    Token j of a path of m tokens stands at start + j * S / m; what follows the paths begins at start + S.
    """
    mean = len(lengths) / sum(1 / n for n in lengths)
    return [[start + j * mean / n for j in range(n)] for n in lengths], mean


def left_aligned(lengths: Sequence[int], start: float) -> Positions:
    """Every path begins at `start` with unit steps; what follows begins after the longest."""
    return [unit_steps(start, n) for n in lengths], float(max(lengths))


LAYOUTS: dict[str, Callable[[Sequence[int], float], Positions]] = {
    "equilibrium": equilibrium,
    "left_aligned": left_aligned,
}
