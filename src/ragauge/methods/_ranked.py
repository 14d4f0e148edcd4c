"""Retrieval baselines: a ranker scores the documents, the best few go into a plain prompt."""

from __future__ import annotations

import importlib
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from ragauge.cost.trace import Call
from ragauge.engines.protocol import Capabilities, Capability, Limits, SpanEngine
from ragauge.methods._base import Answer, Method, read_plain
from ragauge.methods._reading import Reading
from ragauge.prompts import PREAMBLE, TASK, Prompt, PromptGraph, Segment, unit_steps

ROOM = 1024  # tokens of the cached documents that a lazy state starts with


@dataclass(frozen=True)
class Ranked(Method):
    """Keep the `top_k` documents that the ranker scores highest, in descending order, in one plain prompt.

    With `path_caching` (the paper's accounting of its baselines) the best document was read after the preamble before
    the query was known, and only the others are read after it. Which document that will be is known with the query
    alone, so all of them would have been read; here the one needed is read when it is first asked for, and its call
    is marked as offline.
    """

    top_k: Annotated[int, Field(ge=1)] = 1
    path_caching: bool = True
    library: ClassVar[str | None] = None  # of the ranker: imported before anything is timed

    def fitted(self, able: Capabilities) -> Self:
        """Without path caching on an engine that has no caches of its own to show."""
        return self if Capability.SPANS in able else replace(self, path_caching=False)

    def required(self) -> Capabilities:
        return frozenset({Capability.SPANS}) if self.path_caching else frozenset()

    @abstractmethod
    def rank(self, engine: SpanEngine, state: Any, prompt: Prompt) -> np.ndarray:
        """Scores of the documents for the question: (document,), higher is better."""

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> RankedState:
        if self.library:
            importlib.import_module(self.library)
        if not self.path_caching:
            return RankedState(None)
        graph = PromptGraph([Segment(PREAMBLE, prompt.preamble, unit_steps(0, len(prompt.preamble)))])
        reading = Reading(engine, graph, engine.new_cache(len(prompt.preamble) + ROOM))
        reading.read([PREAMBLE], stage="preamble", offline=True)
        return RankedState(reading)

    def answer(self, engine: SpanEngine, state: RankedState, prompt: Prompt, limits: Limits) -> Answer:
        scores = self._timed_rank(engine, state, prompt)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.top_k]
        if state.reading is None:
            segments = [prompt.preamble, *(prompt.documents[i] for i in order), prompt.query, prompt.task]
            ids = read_plain(engine, segments, limits)
        else:
            ids = _answer_after(state.reading, order, prompt, limits)
        return Answer(ids, tuple(order), tuple(float(s) for s in scores))

    def _timed_rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        started = time.perf_counter()
        scores = self.rank(engine, state, prompt)
        seconds = time.perf_counter() - started
        engine.note(Call("rank", (), (), macs=self.query_macs(prompt), seconds=seconds))
        return scores

    def query_macs(self, prompt: Prompt) -> int:
        """Multiply-accumulates of scoring one query: none where the ranker counts words."""
        return 0


@dataclass
class RankedState:
    """What is cached: the preamble, every document that was once ranked first, and a ranker's own state."""

    reading: Reading | None
    vectors: np.ndarray | None = None  # (document, dim), of dense rankers


def _answer_after(cached: Reading, order: Sequence[int], prompt: Prompt, limits: Limits) -> list[int]:
    first = ("document", order[0])
    cached.rewind()
    if first not in cached.spans:
        ids = prompt.documents[order[0]]
        cached.graph.add(Segment(first, ids, unit_steps(len(prompt.preamble), len(ids)), (PREAMBLE,)))
        cached.read([first], stage="documents", offline=True)
    rest = [token for i in order[1:] for token in prompt.documents[i]]
    ids = [*rest, *prompt.query, *prompt.task]
    reading = cached.keep([PREAMBLE, first], len(ids) + limits.max_new_tokens).again()
    start = len(prompt.preamble) + len(prompt.documents[order[0]])
    reading.graph.add(Segment(TASK, ids, unit_steps(start, len(ids)), (first,)))
    return reading.generate(TASK, limits)
