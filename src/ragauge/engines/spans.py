"""Spans of cached tokens, and rows of new tokens that attend to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Span(NamedTuple):
    """A half-open range of slots of a cache."""

    start: int
    stop: int

    def __len__(self) -> int:  # slots, not the two fields
        return self.stop - self.start


@dataclass(frozen=True)
class Row:
    """Tokens of one path and the cached spans that they attend to besides themselves.

    With `slots` the tokens are written in place: each token's keys and values go to its slot, which
    either holds a token of `past` that is being recomputed or is the next free one. Other slots are
    unchanged. A token attends to the slots of `past` and of the row whose position is at most its
    own. Such rows are read one after another.
    """

    ids: Sequence[int]
    positions: Sequence[float]  # one a token, real-valued; ascending where `slots` are given
    past: tuple[Span, ...] = ()
    # one a token; None: the next free ones, causally in their order
    slots: Sequence[int] | None = None
    # (token, d_model) hidden states to go on from; None: the tokens' embeddings
    states: Tensor | None = None

    @property
    def past_length(self) -> int:
        """Slots of the past, including those that the row recomputes."""
        return sum(map(len, self.past))

    @property
    def recomputed(self) -> list[int]:
        """The slots of `past` that the row writes again."""
        return [
            slot
            for slot in self.slots or ()
            if any(span.start <= slot < span.stop for span in self.past)
        ]

    def written(self, start: int) -> Span:
        """The span of the row's tokens once they are read; those without slots of their own go to
        `start` and on.
        """
        if self.slots is None:
            return Span(start, start + len(self.ids))
        return Span(min(self.slots), max(self.slots) + 1)


def in_place(rows: Iterable[Row]) -> bool:
    """Whether tokens are written to slots of their own."""
    return any(row.slots is not None for row in rows)


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same slots in the same order, with adjacent spans merged and empty ones dropped."""
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].stop == span.start:
            merged[-1] = Span(merged[-1].start, span.stop)
        elif span.stop > span.start:
            merged.append(span)
    return tuple(merged)
