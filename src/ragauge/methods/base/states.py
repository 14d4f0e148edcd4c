"""Methods in the states of what was read before the question (`method.State`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import Limits, Response, SpanEngine
from ragauge.methods.base.method import (
    STATES,
    Answer,
    Method,
    State,
    plain_row,
    read_and_generate,
)
from ragauge.methods.base.wrapper import EngineAround
from ragauge.methods.prompts import Prompt

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache


def effective_state(usable: State, state: State, one_document: bool = False) -> State:
    """Return the state whose times a method has in a state: its usable one, or `nothing` below it.

    Args:
        usable: from which the method gains (`Method.usable_state`).
        state: what was read.
        one_document: the list has one document, so that both were read or neither.
    """
    read = "set" if one_document and state == "documents" else state
    return usable if STATES.index(read) >= STATES.index(usable) else "nothing"


def recorded_state(method: Method) -> State:
    """Return the state in which a run of answers has a method: its times leave out what its own
    `prepare` reads.
    """
    return method.usable_state() if method.prepares else "nothing"


def in_state(method: Method, state: State) -> Method:
    """Return the method in a state of `effective_state`."""
    usable = method.usable_state()
    if usable == "nothing":
        return method
    return method.read_before() if state == usable else Unprepared(method)


@dataclass(frozen=True)
class Unprepared(Method):
    """A method for which nothing was read before the question: all of its calls are online."""

    method: Method

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        with engine.tracing() as trace:
            prepared = self.method.prepare(engine, prompt)
            answer = self.method.answer(engine, prepared, prompt, limits)
        for call in trace:
            engine.note(replace(call, offline=False))
        return answer


class PlainPrompt(Method):
    """A method whose prompt is all documents in their order, which a prefix cache may have."""

    state = "set"
    prepares = False

    def read_before(self) -> Method:
        return PrefixCached(self)


@dataclass(frozen=True)
class PrefixCached(Method):
    """A plain prompt on an engine that has read preamble and documents in this order before, as a
    server's prefix cache has.
    """

    method: Method

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> _PrefixEngine:
        ids = prompt.as_one(engine.tokenizer, prompt.documents)[: -len(prompt.ending)]
        cache = engine.new_cache(len(ids) + len(prompt.ending))
        engine.extend(cache, [plain_row(ids)], stage="documents", offline=True)
        return _PrefixEngine(engine, ids, cache)

    def answer(
        self, engine: SpanEngine, state: _PrefixEngine, prompt: Prompt, limits: Limits
    ) -> Answer:
        return self.method.answer(state, None, prompt, limits)


@dataclass(eq=False)
class _PrefixEngine(EngineAround):
    """Reads of a prompt what follows the tokens that it has in common with the cached prefix."""

    ids: list[int]
    cache: KVCache

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`."""
        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        pairs = zip(ids[:-1], self.ids, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.cache.truncate(shared)
        row = plain_row(ids[shared:], shared)
        return Response(read_and_generate(self.engine, self.cache, row, limits))
