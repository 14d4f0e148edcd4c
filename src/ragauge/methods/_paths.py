"""Documents on parallel paths."""

from __future__ import annotations

from itertools import pairwise

Paths = list[tuple[int, ...]]
"""The documents of each parallel path."""


def split_paths(documents: int, factor: int | None) -> Paths:
    """Adjacent documents joined so that `factor` paths hold as even a number of them as can be."""
    paths = min(factor or documents, documents)
    edges = [round(i * documents / paths) for i in range(paths + 1)]
    return [tuple(range(a, b)) for a, b in pairwise(edges)]
