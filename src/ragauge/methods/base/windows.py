"""Documents read in parallel windows: none sees another, and the question sees all."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ragauge.engines.protocol import Limits, Span, SpanEngine
from ragauge.methods.base.method import FULL_ATTENTION, Answer, Method
from ragauge.methods.base.reading import Reading, read_preamble
from ragauge.methods.prompts import PREAMBLE, Name, Prompt, unit_segment

Paths = list[tuple[int, ...]]
"""The documents of each parallel path."""

Indent = Literal["left", "right"]
Visible = Literal["preamble", "first_token", "nothing"]
# capacity for the question and the response; the cache grows when they need more
ANSWER_TOKENS = 512


def split_paths(documents: int, factor: int | None = None) -> Paths:
    """Join adjacent documents so that `factor` paths have as even a number of them as can be; None:
    one a path.
    """
    paths = min(factor or documents, documents)
    edges = [round(i * documents / paths) for i in range(paths + 1)]
    return [tuple(range(a, b)) for a, b in pairwise(edges)]


class Windowed(Method):
    """A method whose `prepare` reads the documents in windows, and whose question sees all of them."""

    requires = FULL_ATTENTION
    state = "documents"

    def answer(
        self, engine: SpanEngine, state: ReadWindows, prompt: Prompt, limits: Limits
    ) -> Answer:
        """Read the question after the longest window, seeing all of them, and generate the answer."""
        reading = state.reading.again()
        ids = reading.generate(prompt.ending, state.stop, reading.spans, limits)
        return Answer(ids, kept=tuple(range(len(prompt.documents))))


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
        sees: what of the preamble a window attends to; its first token is the begin of text where
            there is one.
        indent: windows begin together (left) or end together (right).
        parallel: read all windows in one call.
    """
    start = len(prompt.preamble)
    windows = [[token for i in path for token in prompt.documents[i]] for path in paths]
    longest = max(map(len, windows))
    room = sum(map(len, windows)) + ANSWER_TOKENS
    reading = read_preamble(engine, prompt, room, first_apart=sees == "first_token")
    parents = () if sees == "nothing" else (PREAMBLE,)
    names = tuple(("document", path[0]) for path in paths)
    for name, ids in zip(names, windows, strict=True):
        at = start + (longest - len(ids) if indent == "right" else 0)
        reading.graph.add(unit_segment(name, ids, at, parents))
    reading.read(names, stage="documents", offline=True, parallel=parallel)
    return ReadWindows(reading, names, float(start + longest))
