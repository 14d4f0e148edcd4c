"""Costs and savings of documents' keys and values on disk: the formulas of
docs/engine.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Seconds:
    """Seconds of one question's documents, and of its answer."""

    computing_s: float  # keys and values computed from the tokens
    saving_s: float  # written to disk
    loading_s: float  # read from disk, not from memory
    online_s: float  # question, task and response, the documents being ready

    def latency_s(self, hit_rate: float) -> float:
        """Mean seconds of a question, a part `hit_rate` (0 to 1) of them having its documents on
        disk.
        """
        return (
            self.online_s
            + hit_rate * self.loading_s
            + (1 - hit_rate) * (self.computing_s + self.saving_s)
        )


def break_even_reuses(seconds: Seconds) -> int | None:
    """The fewest times that documents must be asked about again until the `computing_s - loading_s`
    spared at each reuse have paid for `saving_s`; None: never.
    """
    spared = seconds.computing_s - seconds.loading_s
    if seconds.saving_s <= 0:
        return 0
    return math.ceil(seconds.saving_s / spared) if spared > 0 else None


def break_even_questions(seconds: Seconds, naive_s: float) -> int | None:
    """The fewest questions about the same documents that take no more time in all than naive's,
    `naive_s` each, where the first computes and writes what the others read; None: no number of
    them does.
    """
    first = seconds.latency_s(0)
    again = seconds.latency_s(1)
    if first <= naive_s:
        return 1
    return math.ceil((first - again) / (naive_s - again)) if again < naive_s else None


def break_even_hit_rate(seconds: Seconds, naive_s: float) -> float | None:
    """The smallest hit rate whose mean latency is not above naive's; None: none is."""
    if seconds.latency_s(1) > naive_s and seconds.latency_s(0) > naive_s:
        return None
    spared = seconds.latency_s(0) - seconds.latency_s(1)
    return max(0.0, (seconds.latency_s(0) - naive_s) / spared) if spared > 0 else 0.0
