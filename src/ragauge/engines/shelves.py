"""Keys and values of several responses side by side, so that one attention computes a token of all of them.

A response's keys are copied to a row of a shelf when it begins and its new ones back to its cache when it ends. Rows of
a shelf have the same room; there is a shelf for every power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Part
from ragauge.engines.layout import lay_out_steps

LEAST = 256  # slots of a row


@dataclass(eq=False)
class ShelfPlace:
    """A response's row of a shelf."""

    shelf: Shelf
    row: int
    cache: KVCache  # its own, whose length counts the tokens on the shelf as well
    first: int = field(init=False)  # slots that the cache holds itself

    def __post_init__(self) -> None:
        self.first = self.cache.length

    def leave(self) -> None:
        """Write the new tokens into the response's own cache, and free the row."""
        at = self.row * self.shelf.every
        _copy(self.shelf.cache, slice(at + self.first, at + self.cache.length), self.cache, self.first)
        self.shelf.rows[self.row] = None


class Shelf:
    """Rows of one length."""

    def __init__(self, like: KVCache, every: int) -> None:
        self.every, self.rows = every, list[ShelfPlace | None]()
        self.cache = _zeroed(like, 0)

    def take(self, cache: KVCache) -> ShelfPlace:
        """A row with a copy of what the cache holds."""
        if None not in self.rows:
            grown = _zeroed(cache, max(1, 2 * len(self.rows)) * self.every)
            _copy(self.cache, slice(0, self.cache.capacity), grown, 0)
            self.cache = grown
            self.rows += [None] * (grown.capacity // self.every - len(self.rows))
        place = ShelfPlace(self, self.rows.index(None), cache)
        _copy(cache, slice(0, cache.length), self.cache, place.row * self.every)
        self.rows[place.row] = place
        return place

    def part(self, places: Sequence[ShelfPlace], positions: Tensor) -> Part:
        """One new token of each of the places, which are in the order of their rows."""
        past: list[int | None] = [None] * (places[-1].row + 1)
        for place in places:
            past[place.row] = place.cache.length
        return Part(positions, self.cache, lay_out_steps(past, self.every, positions.device))


class Shelves:
    """Shelves by the length of their rows."""

    def __init__(self) -> None:
        self._by_length: dict[int, Shelf] = {}

    def take(self, cache: KVCache, more: int) -> ShelfPlace | None:
        """A row for what a cache holds and `more` tokens; None if it is not a plain cache, or memory is short."""
        if not cache.plain or not isinstance(cache.k[0], Tensor):
            return None
        every = max(LEAST, 1 << (cache.length + more - 1).bit_length())
        try:
            if every not in self._by_length:
                self._by_length[every] = Shelf(cache, every)
            return self._by_length[every].take(cache)
        except (MemoryError, torch.OutOfMemoryError):
            return None


def _zeroed(like: KVCache, slots: int) -> KVCache:
    made = KVCache(like.shape, slots, like.k[0].dtype, like.positions.device)
    for values in (*(part for _, part in made.parts()), made.positions):
        values.zero_()  # a slot that the mask hides has the weight 0, and 0 x NaN is NaN
    return made


def _copy(source: KVCache, slots: slice, target: KVCache, start: int) -> None:
    stop = start + slots.stop - slots.start
    for theirs, mine in zip(source.k + source.v, target.k + target.v, strict=True):
        mine[:, start:stop] = theirs[:, slots]
    target.positions[start:stop] = source.positions[slots]
