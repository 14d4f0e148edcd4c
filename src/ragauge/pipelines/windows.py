"""Which tokens attend to which retrieval: query windows, intervals, staleness and shift (PipeRAG,
section 3.2).

Window i of a sequence begins every `interval` tokens m. A fresh query is the tokens `[i*m, i*m +
64)`; a stale one that of the window before, whose neighbours lie m tokens behind: their first m
tokens are dropped (Figure 3).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ragauge.errors import SettingError, UserError

CHUNK = 64  # tokens of a database chunk and of a query
NEIGHBOUR = 2 * CHUNK  # tokens of a neighbour that are attended to: the chunk and its continuation


def check_chunk_tokens(tokens: int, where: str) -> None:
    """Raise UserError unless a database's chunks are as long as queries: neighbours of any other
    length would be cut at the wrong place, or to nothing.
    """
    if tokens != CHUNK:
        raise UserError(
            f"{where}: chunk_tokens: must be {CHUNK} where a decoder reads neighbours, got {tokens}"
        )


@dataclass(frozen=True)
class Windows:
    interval: int = CHUNK  # m: tokens between retrievals
    # each query is that of the window before, so that it can be answered ahead of time
    stale: bool = False

    def __post_init__(self) -> None:
        if self.interval < 1 or CHUNK % self.interval:
            choices = ", ".join(str(m) for m in range(1, CHUNK + 1) if CHUNK % m == 0)
            raise SettingError(
                "interval",
                f"{self.interval} does not divide the {CHUNK} tokens of a chunk; known: {choices}",
            )

    def window_at(self, position: int) -> int:
        """Return the window whose neighbours the token at `position` attends to; -1 if it attends to
        none.
        """
        return max(-1, (position + 1 - CHUNK) // self.interval)

    def first(self, window: int) -> int:
        """Return the first place that attends to a window's neighbours: the last token of its fresh
        query.
        """
        return CHUNK - 1 + window * self.interval

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the tokens [start, stop) cut where the window changes: (start, stop, window); -1
        before the first one.
        """
        while start < stop:
            window = self.window_at(start)
            end = min(stop, self.first(window + 1))
            yield start, end, window
            start = end

    def query(self, window: int) -> slice:
        """Return the places of the tokens of a window's query."""
        first = max(0, window - 1) if self.stale else window
        return slice(first * self.interval, first * self.interval + CHUNK)

    def part(self, window: int) -> slice:
        """Return the tokens of each neighbour fetched for a window that are attended to."""
        shift = self.interval if self.stale and window > 0 else 0
        return slice(shift, shift + NEIGHBOUR)

    @property
    def continuation(self) -> int:
        """Chunks that must be fetched after each neighbour: 1, or 2 where the first `interval`
        tokens are dropped.
        """
        return 2 if self.stale else 1
