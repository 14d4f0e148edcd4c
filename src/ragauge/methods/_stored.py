"""Documents whose keys and values are stored apart, put side by side in a prompt, and partly read again there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ragauge.cost.trace import Call
from ragauge.engines.protocol import Capability, Extension, Limits, Row, Span, SpanEngine
from ragauge.methods._base import Answer, generate, plain_row
from ragauge.prompts import Prompt, unit_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache
    from ragauge.methods._base import Compress


@dataclass(frozen=True)
class Stored:
    """The preamble, and documents that see neither it nor each other, side by side in the prompt's order.

    A document's tokens stand at positions of its own; its keys and values do not depend on the prompt that it is in.
    """

    engine: SpanEngine
    cache: KVCache
    preamble: Span
    documents: tuple[Span, ...]
    origins: tuple[float, ...]  # position of each document's first token
    ids: tuple[Sequence[int], ...]  # each document's tokens

    def compressed(self, compress: Compress) -> Stored:
        """The same documents, each compressed."""
        cache = self.engine.join(self.cache, [self.preamble], sum(map(len, self.documents)))
        documents = []
        for span, ids in zip(self.documents, self.ids, strict=True):
            kept = compress(self.cache, (), span, ids)
            documents.append(Span(cache.length, cache.length + kept.length))
            cache.append(kept, Span(0, kept.length))
        return replace(self, cache=cache, documents=tuple(documents))

    def assembled(self, prompt: Prompt, extra: int, apart: int = 0) -> Assembled:
        """A copy in which every token stands where the plain prompt has it, with room for `extra` more.

        Keys are moved from where they are stored, in one step; both are traced as "move".

        Args:
            apart: positions left free behind each document.
        """
        started, start, stop = time.perf_counter(), self.preamble.stop, self.documents[-1].stop
        cache = self.engine.join(self.cache, [Span(0, stop)], extra)
        places = list(accumulate((len(ids) + apart for ids in prompt.documents), initial=len(prompt.preamble)))
        by = [at - old for at, old in zip(places, self.origins, strict=False)]
        cache.shift(
            Span(start, stop), [d for d, span in zip(by, self.documents, strict=True) for _ in range(len(span))]
        )
        self.engine.note(Call("move", (), (), macs=0, seconds=time.perf_counter() - started))
        ids = [token for segment in (prompt.preamble, *prompt.documents) for token in segment]
        return Assembled(
            self.engine, cache, ids, [*prompt.query, *prompt.task], self.documents, stop, float(places[-1])
        )


@dataclass(frozen=True)
class Assembled:
    """A prompt's documents in their places, and its question, not yet read.

    A token's slot is its position, unless the documents are compressed.
    """

    engine: SpanEngine
    cache: KVCache
    ids: list[int]  # of preamble and documents, by slot
    question: list[int]
    documents: tuple[Span, ...]
    length: int  # slots of preamble and documents
    stop: float  # position of the question

    @property
    def chosen_from(self) -> Span:
        """The documents' slots."""
        return Span(self.documents[0].start, self.length)

    def row(self, chosen: Sequence[int], states: Tensor | None = None) -> Row:
        """The tokens of these slots, ascending, and the question's, written in their places."""
        slots = [*chosen, *range(self.length, self.length + len(self.question))]
        ids = [self.ids[slot] for slot in chosen] + self.question
        return Row(ids, [float(slot) for slot in slots], (Span(0, self.cache.length),), slots, states)

    def question_row(self) -> Row:
        """The question alone, behind everything."""
        return Row(self.question, unit_steps(self.stop, len(self.question)), (Span(0, self.length),))

    def answer(self, chosen: Sequence[int], limits: Limits) -> Answer:
        """Read these slots again and the question, through all layers, and generate."""
        row = self.row(chosen) if len(chosen) else self.question_row()
        read = self.engine.extend(self.cache, [row], stage="prompt", last_logits=True)
        return self.response(read, limits)

    def response(self, read: Extension, limits: Limits) -> Answer:
        """What follows the question, which was read last."""
        ids = generate(self.engine, self.cache, read.last_logits, self.stop + len(self.question), limits)
        return Answer(ids, kept=tuple(range(len(self.documents))))


def read_apart(engine: SpanEngine, prompt: Prompt, behind_first: bool = False) -> Stored:
    """The preamble and, one by one, each document on its own: a store finds it in whatever prompt it stands.

    Args:
        behind_first: a document is read behind the preamble's first token, the begin of text where there is one.
    """
    cache = engine.new_cache(len(prompt.preamble) + sum(map(len, prompt.documents)))
    [preamble] = engine.extend(cache, [plain_row(prompt.preamble)], stage="preamble", offline=True).spans
    past = (Span(0, 1),) if behind_first else ()
    documents: list[Span] = []
    for ids in prompt.documents:
        row = Row(ids, unit_steps(len(past), len(ids)), past)
        documents += engine.extend(cache, [row], stage="documents", offline=True).spans
    origins = (float(len(past)),) * len(documents)
    return Stored(engine, cache, preamble, tuple(documents), origins, tuple(prompt.documents))


def largest(engine: SpanEngine, scores: Tensor, count: int) -> list[int]:
    """Indices of the `count` largest of scores (n,), ascending; ties go to the earlier one.

    The first ones of an engine without weights, whose costs do not depend on which they are.
    """
    if Capability.WEIGHTS not in engine.capabilities:
        return list(range(count))
    return sorted(scores.sort(descending=True, stable=True).indices[:count].tolist())
