"""Prompt Cache (Gim et al. 2024), as the Superposition paper compares with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.engines.protocol import Capabilities, Capability, Limits, SpanEngine
from ragauge.methods._base import Answer, Method
from ragauge.methods._reading import Reading
from ragauge.prompts import LAYOUTS, PREAMBLE, TASK, Prompt, PromptGraph, Segment, unit_steps


@dataclass(frozen=True)
class PromptCache(Method):
    """Every document is a module of its own, cached without attending to the preamble; the query attends to all.

    Documents are left-aligned after the preamble and none is dropped.
    """

    requires: ClassVar[Capabilities] = frozenset({Capability.SPANS})

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Reading:
        start = len(prompt.preamble)
        positions, _ = LAYOUTS["left_aligned"]([len(d) for d in prompt.documents], start)
        graph = PromptGraph([Segment(PREAMBLE, prompt.preamble, unit_steps(0, start))])
        names = [("document", i) for i in range(len(prompt.documents))]
        for name, ids, at in zip(names, prompt.documents, positions, strict=True):
            graph.add(Segment(name, ids, at))
        tokens = start + sum(map(len, prompt.documents))
        reading = Reading(engine, graph, engine.new_cache(tokens + ROOM))
        reading.read([PREAMBLE], stage="preamble", offline=True)
        reading.read(names, stage="documents", offline=True)
        return reading

    def answer(self, engine: SpanEngine, state: Reading, prompt: Prompt, limits: Limits) -> Answer:
        reading = state.again()
        start = len(prompt.preamble) + max(map(len, prompt.documents))
        ids = [*prompt.query, *prompt.task]
        reading.graph.add(Segment(TASK, ids, unit_steps(start, len(ids)), tuple(reading.spans)))
        return Answer(reading.generate(TASK, limits), kept=tuple(range(len(prompt.documents))))


ROOM = 512  # tokens for the question and the response; the cache grows when they need more
