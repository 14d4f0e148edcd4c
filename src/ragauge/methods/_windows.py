"""Documents read in parallel windows: none sees another, and the question sees all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ragauge.engines.protocol import Limits, Span, SpanEngine
from ragauge.methods._base import Answer
from ragauge.methods._paths import Paths
from ragauge.methods._reading import Reading
from ragauge.prompts import PREAMBLE, TASK, Name, Prompt, PromptGraph, Segment, unit_steps

Indent = Literal["left", "right"]
BEGIN, REST = PREAMBLE, ("preamble", 1)
ROOM = 512  # tokens for the question and the response; the cache grows when they need more


@dataclass(frozen=True)
class ReadWindows:
    """The preamble and every window, read; the question goes on at `stop`."""

    reading: Reading
    names: tuple[Name, ...]  # of the windows
    stop: float

    @property
    def spans(self) -> list[Span]:
        """Where the windows are in the cache."""
        return [self.reading.spans[name] for name in self.names]

    def answer(self, prompt: Prompt, limits: Limits) -> Answer:
        """The question after the longest window, seeing all of them."""
        reading = self.reading.again()
        ids = [*prompt.query, *prompt.task]
        reading.graph.add(Segment(TASK, ids, unit_steps(self.stop, len(ids)), tuple(reading.spans)))
        return Answer(reading.generate(TASK, limits), kept=tuple(range(len(prompt.documents))))


def read_windows(
    engine: SpanEngine, prompt: Prompt, paths: Paths, *, indent: Indent, shared_prefix: bool
) -> ReadWindows:
    """The preamble at 0, then each window (some documents) where the preamble ends, read on its own.

    Windows are read one by one, so that a store finds each whatever stands beside it.

    Args:
        indent: windows begin together (left) or end together (right).
        shared_prefix: a window sees the preamble; else its first token alone, the begin of text where there is one.
    """
    start = len(prompt.preamble)
    windows = [[token for i in path for token in prompt.documents[i]] for path in paths]
    longest = max(map(len, windows))
    graph = _preamble(prompt.preamble, whole=shared_prefix)
    names = tuple(("document", path[0]) for path in paths)
    for name, ids in zip(names, windows, strict=True):
        at = start + (longest - len(ids) if indent == "right" else 0)
        graph.add(Segment(name, ids, unit_steps(at, len(ids)), (BEGIN,)))
    reading = Reading(engine, graph, engine.new_cache(start + sum(map(len, windows)) + ROOM))
    for name in (BEGIN, REST):
        if name in graph.segments:
            reading.read([name], stage="preamble", offline=True)
    reading.read(names, stage="documents", offline=True, parallel=False)
    return ReadWindows(reading, names, start + longest)


def _preamble(ids: list[int], whole: bool) -> PromptGraph:
    """The preamble as one segment, or its first token and the rest."""
    segment = Segment(BEGIN, ids, unit_steps(0, len(ids)))
    if whole or len(ids) == 1:
        return PromptGraph([segment])
    rest = Segment(REST, ids[1:], segment.positions[1:], (BEGIN,))
    return PromptGraph([replace(segment, ids=ids[:1], positions=segment.positions[:1]), rest])
