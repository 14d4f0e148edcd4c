"""Documents whose keys and values are stored one by one, moved into a prompt, and partly read again
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from ragauge.engines.protocol import Capability, Extension, Limits, Row, Span, SpanEngine
from ragauge.methods.base.method import (
    FULL_ATTENTION,
    Answer,
    Method,
    generate,
    plain_row,
    traced,
    unit_row,
)
from ragauge.methods.prompts import Prompt
from ragauge.options import Share

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache
    from ragauge.methods.base.method import Compress

CHECKED = 1  # the layer whose keys or values are compared


@dataclass(frozen=True)
class Stored:
    """The preamble, and documents that see neither it nor each other, side by side in the prompt's
    order.

    A document's tokens stand at positions of its own; its keys and values do not depend on the
    prompt that it is in.
    """

    engine: SpanEngine
    cache: KVCache
    preamble: Span
    documents: tuple[Span, ...]
    origins: tuple[float, ...]  # position of each document's first token
    ids: tuple[Sequence[int], ...]  # each document's tokens

    def compressed(self, compress: Compress) -> Stored:
        """Compress each document; this store stays as it is."""
        cache = self.engine.join(self.cache, [self.preamble], sum(map(len, self.documents)))
        documents = []
        for span, ids in zip(self.documents, self.ids, strict=True):
            smaller = compress(self.cache, (), span, ids)
            documents.append(Span(cache.length, cache.length + smaller.length))
            cache.append(smaller, Span(0, smaller.length))
        return replace(self, cache=cache, documents=tuple(documents))

    def assembled(self, prompt: Prompt, limits: Limits, gap: int = 0) -> Assembled:
        """Copy everything to where the plain prompt has it, with room for question and response.
        Keys are moved from where they are stored, in one step; copy and move are traced as "move".
        `gap`: positions left free behind each document.
        """
        start = self.preamble.stop
        stop = self.documents[-1].stop
        room = len(prompt.documents) * gap + len(prompt.ending) + limits.max_new_tokens
        with traced(self.engine, "move"):
            cache = self.engine.join(self.cache, [Span(0, stop)], room)
            positions = list(
                accumulate(
                    (len(ids) + gap for ids in prompt.documents), initial=len(prompt.preamble)
                )
            )
            shifts = []
            for position, origin, span in zip(
                positions, self.origins, self.documents, strict=False
            ):
                shifts += [position - origin] * len(span)
            cache.shift(Span(start, stop), shifts)
        ids = [token for segment in (prompt.preamble, *prompt.documents) for token in segment]
        return Assembled(
            self.engine, cache, ids, prompt.ending, self.documents, stop, float(positions[-1])
        )


@dataclass(frozen=True)
class Assembled:
    """The documents of a prompt in their places, and its question, which is not read yet.

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
    def document_slots(self) -> Span:
        """The slots of all documents."""
        return Span(self.documents[0].start, self.length)

    def largest(self, scores: Tensor, share: float) -> list[int]:
        """Find the document slots with the largest scores (slot of documents,), a share of all."""
        span = self.document_slots
        return [span.start + i for i in largest(self.engine, scores, int(share * len(span)))]

    def row(self, chosen: Sequence[int], states: Tensor | None = None) -> Row:
        """Make a row that reads the tokens of these slots (ascending) again in place, and the
        question.
        """
        slots = [*chosen, *range(self.length, self.length + len(self.question))]
        ids = [self.ids[slot] for slot in chosen] + self.question
        return Row(
            ids, [float(slot) for slot in slots], (Span(0, self.cache.length),), slots, states
        )

    def question_row(self) -> Row:
        """Make a row of the question alone, behind everything."""
        return unit_row(self.question, self.stop, (Span(0, self.length),))

    def answer(self, chosen: Sequence[int], limits: Limits) -> Answer:
        """Read these slots again and the question, through all layers, and generate the answer."""
        row = self.row(chosen) if len(chosen) else self.question_row()
        read = self.engine.extend(self.cache, [row], stage="prompt", last_logits=True)
        return self.response(read, limits)

    def response(self, read: Extension, limits: Limits) -> Answer:
        """Generate the answer after a call that read the question."""
        ids = generate(
            self.engine, self.cache, read.last_logits, self.stop + len(self.question), limits
        )
        return Answer(ids, kept=tuple(range(len(self.documents))))


def read_apart(engine: SpanEngine, prompt: Prompt, behind: int = 0) -> Stored:
    """Read the preamble and, one by one, each document alone, so that a document store serves it to
    any prompt. `behind`: each document is read behind this many first tokens of the preamble.
    """
    cache = engine.new_cache(len(prompt.preamble) + sum(map(len, prompt.documents)))
    [preamble] = engine.extend(
        cache, [plain_row(prompt.preamble)], stage="preamble", offline=True
    ).spans
    rows = [plain_row(ids, behind) for ids in prompt.documents]
    documents = [
        engine.extend(cache, [row], stage="documents", offline=True).spans[0] for row in rows
    ]
    origins = (float(behind),) * len(documents)
    return Stored(engine, cache, preamble, tuple(documents), origins, tuple(prompt.documents))


class Reuse(Method):
    """A method over stored documents, which are read apart, moved to their places and partly read
    again there.
    """

    requires = FULL_ATTENTION
    state = "documents"

    def delimited(self, engine: SpanEngine, prompt: Prompt) -> Prompt:
        """Return the prompt with the tokens that the method adds."""
        return prompt

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, self.delimited(engine, prompt))

    def chosen(self, assembled: Assembled) -> Sequence[int]:
        """Choose the slots that are read again with the question, ascending."""
        return ()

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        assembled = state.assembled(self.delimited(engine, prompt), limits)
        return assembled.answer(self.chosen(assembled), limits)


@dataclass(frozen=True)
class Blending(Reuse):
    """Reuse that reads all documents again in the first layers and, in the others, what changed
    there the most.
    """

    recompute: Share = 0.16  # share of the documents' tokens
    # what is compared: values (CacheBlend), rotated keys (LMCache)
    criterion: Literal["value", "key"] = "value"

    def blended(self, assembled: Assembled) -> Extension:
        """Read all documents in the first layers, what changed most in the others, and the
        question, if any, in all.
        """
        engine = assembled.engine
        last = engine.shape.layers
        stage, logits = ("prompt", True) if assembled.question else ("again", False)
        span = assembled.document_slots
        checked = (0, min(CHECKED + 1, last))
        everything = assembled.row(range(*span))
        if checked == (0, last):
            return engine.extend(assembled.cache, [everything], stage=stage, last_logits=logits)
        stored = self._compared(assembled).clone()
        read = engine.extend(assembled.cache, [everything], stage="check", layers=checked)
        changed = (self._compared(assembled).float() - stored.float()).pow(2).sum((0, 2))
        chosen = assembled.largest(changed, self.recompute)
        places = [slot - span.start for slot in chosen]
        question = range(len(span), len(span) + len(assembled.question))
        row = assembled.row(chosen, read.states[0][[*places, *question]])
        return engine.extend(
            assembled.cache, [row], stage=stage, layers=(checked[1], last), last_logits=logits
        )

    def _compared(self, assembled: Assembled) -> Tensor:
        """Return the documents' keys or values at the layer where they are compared: (kv_head,
        token, dim).
        """
        cache = assembled.cache
        span = assembled.document_slots
        layers = cache.v if self.criterion == "value" else cache.k
        return layers[CHECKED][:, span.start : span.stop]


def largest(engine: SpanEngine, scores: Tensor, count: int) -> list[int]:
    """Find the indices of the `count` largest scores (n,), ascending; ties go to the earlier one.
    An engine without weights gives the first ones: its costs do not depend on the choice.
    """
    if Capability.WEIGHTS not in engine.capabilities:
        return list(range(count))
    return sorted(scores.sort(descending=True, stable=True).indices[:count].tolist())
