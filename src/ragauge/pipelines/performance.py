"""The performance model of pipelined generation: lines fitted to measured calls, and what they
predict.

PipeRAG, section 3.2: a retrieval is hidden if it takes no longer than generating the window
meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ragauge.cost.overlap import AHEAD, PREFETCH, RETRIEVAL
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import LinearTime, fit_line
from ragauge.pipelines.windows import NEIGHBOUR, Windows


@dataclass(frozen=True)
class GenerationModel:
    """Seconds of the parts of a window, fitted to a trace."""

    decode: LinearTime  # a token, by the tokens that it attends to
    neighbours: LinearTime  # of one window, by their tokens
    ahead: bool = False  # neighbours are read during the window before theirs, after the search
    # part of the neighbours' tokens that are read: earlier windows may have found the same chunks
    fresh: float = 1.0
    # neighbours are slots of the cache, among the tokens that a step attends to
    in_cache: bool = True

    @classmethod
    def fit(cls, trace: Iterable[Call], in_cache: bool = True) -> Self:
        """Return the model fitted to the calls of traced generations.

        Raises:
            UserError: they decoded or read nothing.
        """
        calls = list(trace)
        decoded = (c for c in calls if c.stage == "decode" and c.seconds)
        steps = [(c.past[0] + (c.steps - 1) / 2, (c.seconds or 0.0) / c.steps) for c in decoded]
        read = [
            (sum(c.lengths), c.seconds)
            for c in calls
            if c.stage in ("neighbours", AHEAD) and c.seconds
        ]
        searches = sum(c.stage in (RETRIEVAL, PREFETCH) for c in calls)
        # of a window whose neighbours are all new
        most = max((tokens for tokens, _ in read), default=0)
        fresh = (
            min(1.0, sum(tokens for tokens, _ in read) / (searches * most))
            if searches and most
            else 1.0
        )
        if not steps or not read:
            raise UserError("no measured call to fit the performance model to")
        return cls(
            fit_line(steps), fit_line(read), any(c.stage == AHEAD for c in calls), fresh, in_cache
        )

    def decode_s(self, length: int, tokens: int, neighbour_tokens: int) -> float:
        return tokens * self.decode(
            length + (neighbour_tokens if self.in_cache else 0) + (tokens - 1) / 2
        )

    def read_s(self, k: int) -> float:
        """Seconds to read k neighbours at the start of a window, on average."""
        return self.neighbours(k * NEIGHBOUR * self.fresh)

    def budget_s(self, length: int, windows: Windows, k: int, network_s: float = 0.0) -> float:
        """Seconds that a retrieval may take while the window after `length` tokens is generated
        (nprobe `hide`); at least 1 ms. With reading ahead they include reading what was found;
        `network_s` of the message there and back is taken off.
        """
        read = -self.read_s(k) if self.ahead else self.read_s(k)
        return max(1e-3, self.decode_s(length, windows.interval, k * NEIGHBOUR) + read - network_s)
