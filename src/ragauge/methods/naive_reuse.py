"""Naive reuse of stored documents: moved to their places, nothing read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ragauge.engines.protocol import Capabilities, Capability, Limits, SpanEngine
from ragauge.methods._base import Answer, Method
from ragauge.methods._stored import Stored, read_apart
from ragauge.prompts import Prompt


@dataclass(frozen=True)
class NaiveReuse(Method):
    """Every document is read alone and stored; in a prompt its keys are moved to where they stand there.

    The lower anchor of EPIC, CacheBlend, ProphetKV and FusionRAG ("full reuse", "full KV reuse"). Positions are the
    plain prompt's; what a document says of others is missing. Requires caches whose keys can be moved: rotated ones
    are rotated on, ALiBi's stay as they are.
    """

    requires: ClassVar[Capabilities] = frozenset({Capability.SPANS})

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, prompt)

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        room = len(prompt.query) + len(prompt.task) + limits.max_new_tokens
        return state.assembled(prompt, room).answer([], limits)
