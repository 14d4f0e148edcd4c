"""Documents read in parallel windows: none sees another, and the question sees all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ragauge.engines.protocol import Limits, Span, SpanEngine
from ragauge.methods.base import Answer
from ragauge.methods.base.reading import Reading
from ragauge.prompts import PREAMBLE, TASK, Name, Prompt, PromptGraph, Segment, unit_steps

Paths = list[tuple[int, ...]]
"""The documents of each parallel path."""

Indent = Literal["left", "right"]
Visible = Literal["preamble", "first_token", "nothing"]
PREAMBLE_REST: Name = ("preamble", 1)
ANSWER_TOKENS = 512  # capacity for the question and the response; the cache grows when they need more


def split_paths(documents: int, factor: int | None = None) -> Paths:
    """Join adjacent documents so that `factor` paths have as even a number of them as can be; None: one a path."""
    paths = min(factor or documents, documents)
    edges = [round(i * documents / paths) for i in range(paths + 1)]
    return [tuple(range(a, b)) for a, b in pairwise(edges)]


@dataclass(frozen=True)
class ReadWindows:
    """The preamble and every window, read; the question goes on at `stop`."""

    reading: Reading
    names: tuple[Name, ...]  # of the windows
    stop: float

    @property
    def spans(self) -> list[Span]:
        """The slots of each window in the cache."""
        return [self.reading.spans[name] for name in self.names]

    def answer(self, prompt: Prompt, limits: Limits) -> Answer:
        """Read the question after the longest window, seeing all of them, and generate the answer."""
        reading = self.reading.again()
        ids = prompt.ending
        reading.graph.add(Segment(TASK, ids, unit_steps(self.stop, len(ids)), tuple(reading.spans)))
        return Answer(reading.generate(TASK, limits), kept=tuple(range(len(prompt.documents))))


def read_windows(
    engine: SpanEngine,
    prompt: Prompt,
    paths: Paths,
    *,
    sees: Visible,
    indent: Indent = "left",
    parallel: bool = False,
) -> ReadWindows:
    """Read the preamble at 0, then each window of documents where the preamble ends.

    Args:
        sees: what of the preamble a window attends to; its first token is the begin of text where there is one.
        indent: windows begin together (left) or end together (right).
        parallel: read all windows in one call; one by one, a document store finds each beside any others.
    """
    start = len(prompt.preamble)
    windows = [[token for i in path for token in prompt.documents[i]] for path in paths]
    longest = max(map(len, windows))
    graph = _preamble(prompt.preamble, whole=sees != "first_token")
    preambles = list(graph.segments)
    names = tuple(("document", path[0]) for path in paths)
    for name, ids in zip(names, windows, strict=True):
        at = start + (longest - len(ids) if indent == "right" else 0)
        graph.add(Segment(name, ids, unit_steps(at, len(ids)), () if sees == "nothing" else (PREAMBLE,)))
    reading = Reading(engine, graph, engine.new_cache(start + sum(map(len, windows)) + ANSWER_TOKENS))
    for name in preambles:
        reading.read([name], stage="preamble", offline=True)
    reading.read(names, stage="documents", offline=True, parallel=parallel)
    return ReadWindows(reading, names, float(start + longest))


def _preamble(ids: list[int], whole: bool) -> PromptGraph:
    """The preamble as one segment, or its first token and the rest."""
    segment = Segment(PREAMBLE, ids, unit_steps(0, len(ids)))
    if whole or len(ids) == 1:
        return PromptGraph([segment])
    rest = Segment(PREAMBLE_REST, ids[1:], segment.positions[1:], (PREAMBLE,))
    return PromptGraph([replace(segment, ids=ids[:1], positions=segment.positions[:1]), rest])
