"""Latency of pipelined generation from its trace: as it ran, with ideal overlap, and with either
part faster.

PipeRAG, section 4.3, appendix C.2 and Figure 7; docs/piperag.md explains the stages of a trace.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ragauge.cost.trace import Call, online

RETRIEVAL = "retrieval"  # blocked the generation
PREFETCH = "prefetch"  # ran while the window before was generated
AHEAD = "neighbours_ahead"  # work of the decoder after a prefetch, in the same thread
WAIT = "wait"  # the part of a prefetch and of the work after it that was not hidden


@dataclass(frozen=True)
class OverlapWindow:
    """One retrieval and the generation that it overlapped or preceded, in seconds."""

    retrieval_s: float
    generation_s: float  # of the window before it
    hidden: bool  # it was prefetched during generation
    ahead_s: float = 0.0  # of the decoder's work after a prefetch

    @property
    def seconds(self) -> float:
        """Seconds of the two in an ideal schedule."""
        if self.hidden:
            return max(self.retrieval_s + self.ahead_s, self.generation_s)
        return self.retrieval_s + self.generation_s


def windows(
    trace: Iterable[Call], retrieval: float = 1.0, generation: float = 1.0
) -> list[OverlapWindow]:
    """The trace as pairs of a retrieval and the generation since the one before it, each so many
    times faster; the last has no retrieval.
    """
    pairs: list[OverlapWindow] = []
    generation_s = 0.0
    for call in online(trace):
        seconds = call.seconds or 0.0
        if call.stage in (RETRIEVAL, PREFETCH):
            pairs.append(OverlapWindow(seconds / retrieval, generation_s, call.stage == PREFETCH))
            generation_s = 0.0
        elif call.stage == AHEAD:
            pairs[-1] = replace(pairs[-1], ahead_s=pairs[-1].ahead_s + seconds / generation)
        elif call.stage != WAIT:
            generation_s += seconds / generation
    return [*pairs, OverlapWindow(0.0, generation_s, False)]


def ideal_s(trace: Iterable[Call], retrieval: float = 1.0, generation: float = 1.0) -> float:
    """Seconds of the generation if every prefetch overlapped its window at no cost to either (the
    longer counts), with each part so many times faster.
    """
    return sum(window.seconds for window in windows(trace, retrieval, generation))


def waited_s(trace: Iterable[Call]) -> float:
    """Seconds in which generation stood still for a retrieval."""
    return sum(call.seconds or 0.0 for call in online(trace) if call.stage in (RETRIEVAL, WAIT))
