"""Keys and values of several responses side by side, so that one attention computes a token of all
of them.

A response's keys are copied to a row when it begins, and its new ones back to its own cache when it
ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache
from ragauge.engines.layout import Part, lay_out_steps

MIN_ROW = 256  # slots


@dataclass(eq=False)
class BatchRow:
    """A response's row of a batched cache."""

    batched: BatchedKVCache
    index: int
    cache: KVCache  # the response's own, whose length counts the tokens in the row as well
    first: int  # slots that its own cache holds

    def release(self) -> None:
        """Write the new tokens into the response's own cache, and free the row."""
        start = self.index * self.batched.stride
        new = slice(start + self.first, start + self.cache.length)
        self.cache.copy(self.batched.cache, new, self.first)
        self.batched.rows[self.index] = None


class BatchedKVCache:
    """Rows of `stride` slots each."""

    def __init__(self, cache: KVCache, stride: int) -> None:
        self.stride = stride
        self.rows: list[BatchRow | None] = []
        self.cache = cache.like(0)

    def add(self, cache: KVCache) -> BatchRow:
        """A row with a copy of the cache's content."""
        if None not in self.rows:
            grown = cache.like(max(1, 2 * len(self.rows)) * self.stride)
            grown.copy(self.cache, slice(0, self.cache.capacity), 0)
            self.cache = grown
            self.rows += [None] * (grown.capacity // self.stride - len(self.rows))
        row = BatchRow(self, self.rows.index(None), cache, cache.length)
        self.cache.copy(cache, slice(0, cache.length), row.index * self.stride)
        self.rows[row.index] = row
        return row

    def part(self, rows: Sequence[BatchRow], positions: Tensor) -> Part:
        """One new token in each of these rows, which are in order."""
        pasts: list[int | None] = [None] * (rows[-1].index + 1)
        for row in rows:
            pasts[row.index] = row.cache.length
        return Part(positions, self.cache, lay_out_steps(pasts, self.stride, positions.device))


def add_row(
    batched: dict[tuple[int, Shape], BatchedKVCache], cache: KVCache, more: int
) -> BatchRow | None:
    """A row for a cache and `more` tokens in `batched`, by row length and the decoder's shape; None
    if the cache is not plain, or memory is short.
    """
    if not cache.plain:
        return None
    stride = max(MIN_ROW, 1 << (cache.length + more - 1).bit_length())
    try:
        if (stride, cache.shape) not in batched:
            batched[stride, cache.shape] = BatchedKVCache(cache, stride)
        return batched[stride, cache.shape].add(cache)
    except (MemoryError, torch.OutOfMemoryError):
        return None
