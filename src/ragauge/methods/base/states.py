"""Methods in the states of what was read before the question (`method.State`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragauge.cost.cycles import uncached
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


def usable_state(method: Method, one_document: bool) -> State:
    """Return the state from which a method gains; a list of one document is that document."""
    usable = method.usable_state()
    return "documents" if one_document and usable == "set" else usable


def effective_state(usable: State, state: State) -> State:
    """Return the state whose times a method has in a state: its usable one, or `nothing` below it."""
    return usable if STATES.index(state) >= STATES.index(usable) else "nothing"


def in_state(method: Method, state: State) -> Method:
    """Return the method in its usable state, or with nothing read."""
    return Unprepared(method) if state == "nothing" else method.read_before()


@dataclass(frozen=True)
class Around(Method):
    """A method that answers as another one does, and reads other things before the question."""

    method: Method

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        return self.method.answer(engine, state, prompt, limits)


class Unprepared(Around):
    """A method for which nothing was read before the question: its calls are online, but for
    embeddings of documents.
    """

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        with engine.tracing() as trace:
            prepared = self.method.prepare(engine, prompt)
            answer = self.method.answer(engine, prepared, prompt, limits)
        for call in uncached(trace):
            engine.note(call)
        return answer


class PlainPrompt(Method):
    """A method whose prompt is all documents in their order, which a prefix cache may have."""

    state = "set"
    prepares = False

    def read_before(self) -> Method:
        return PrefixCached(self)


class PrefixCached(Around):
    """A plain prompt on an engine that has read preamble and documents in this order before, as a
    server's prefix cache has.
    """

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> tuple[_PrefixEngine, Any]:
        ids = prompt.as_one(engine.tokenizer, prompt.documents)[: -len(prompt.ending)]
        cache = engine.new_cache(len(ids) + len(prompt.ending))
        engine.extend(cache, [plain_row(ids)], stage="documents", offline=True)
        return _PrefixEngine(engine, ids, cache), self.method.prepare(engine, prompt)

    def answer(
        self,
        engine: SpanEngine,
        state: tuple[_PrefixEngine, Any],
        prompt: Prompt,
        limits: Limits,
    ) -> Answer:
        return self.method.answer(state[0], state[1], prompt, limits)


@dataclass(eq=False)
class _PrefixEngine(EngineAround):
    """Reads of a prompt what follows the tokens that it has in common with the cached prefix."""

    ids: list[int]
    cache: KVCache

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`."""
        assert not isinstance(prompt, str)
        most = min(len(prompt) - 1, len(self.ids))
        shared = next((i for i in range(most) if prompt[i] != self.ids[i]), most)
        self.cache.truncate(shared)
        row = plain_row(prompt[shared:], shared)
        return Response(read_and_generate(self.engine, self.cache, row, limits))
