"""CFIC: chunking-free in-context retrieval (Qian et al., ACL 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ragauge.errors import UserError
from ragauge.grounding import prefix, skip
from ragauge.grounding.request import after_document, before_document, token_ids
from ragauge.grounding.sentences import Sentence, tokenize
from ragauge.grounding.trie import LONGEST, Trie
from ragauge.lm import LM, KVCache, Limits, Row, Span
from ragauge.methods._base import Answer, Evidence, Method, read_plain
from ragauge.prompts import Prompt, Source, cut_middle, unit_steps

CHUNK = 1024  # tokens of the document that are read in one pass: the mask is (CHUNK, tokens before), never square
QUESTION_ROOM = 256  # tokens kept free for the request when a document is cut to the context


@dataclass(frozen=True)
class CFIC(Method):
    """Evidence is found by decoding in the one cached document: sentence prefixes first, then where each ends.

    `prepare` reads all documents as one, once and before the question is known; a document beyond the model's context
    loses its middle. `answer` reads the question, searches the `top_k` likeliest sentence prefixes, lets each run to
    the sentence end within `d` tokens after which the model would stop (one pass for all), and answers from these
    stretches, in document order, with the data set's prompt. They are verbatim by construction.

    Ablations: without `prefix`, unconstrained sequences of 8 tokens are matched back to sentences; without `skip`,
    every stretch runs on for `d` tokens, to the last sentence that ends within them.
    """

    top_k: Annotated[int, Field(ge=1)] = 3  # prefixes
    d: Annotated[int, Field(ge=0)] = 256  # tokens after a prefix within which evidence ends
    prefix: bool = True
    skip: bool = True
    search: Literal["beam", "first_token"] = "beam"  # "first_token" is the released code's greedy choice

    def unsupported(self, lm: LM) -> str | None:
        if lm.decoder is None or lm.tokenizer is None:
            return "finds evidence by what the model says of a text: needs weights and a tokenizer"
        if not lm.tokenizer.is_fast:
            return "the model's tokenizer does not say which characters a token stands for"
        return None if lm.shape.eos else "the model has no end-of-text token, whose probability ends evidence"

    def prepare(self, lm: LM, prompt: Prompt) -> Grounding:
        opening = before_document(lm.tokenizer, prompt.opening)
        room = lm.shape.max_context - len(opening) - len(prompt.task) - self._tail_room
        if room < 2:
            raise UserError(f"the model's context of {lm.shape.max_context} tokens has no room for a document; lower d")
        sources, truncated = cut_middle(prompt.sources, lm.tokenizer, room // 2, room - room // 2)
        ids, sentences = tokenize(sources, lm.tokenizer)
        if not sentences:
            raise UserError("the document has no sentence")
        cache = lm.new_cache(
            len(opening) + len(ids) + len(prompt.task) + self._tail_room + self.top_k * (self.d + LONGEST)
        )
        _read_document(lm, cache, [*opening, *ids])
        trie = Trie([ids[s.first : s.end] for s in sentences])
        return Grounding(cache, cache.length, ids, sentences, trie, sources, truncated)

    @property
    def _tail_room(self) -> int:
        """Positions kept free after the document: the request, and one row of a prefix and what follows it."""
        return QUESTION_ROOM + LONGEST + self.d

    def answer(self, lm: LM, state: Grounding, prompt: Prompt, limits: Limits) -> Answer:
        evidence = self.find(lm, state, prompt)
        text = "\n".join(piece.text for piece in evidence) + prompt.document_end
        ids = read_plain(lm, [prompt.preamble, token_ids(lm.tokenizer, text), prompt.query, prompt.task], limits)
        kept = tuple(sorted({piece.document for piece in evidence}))
        return Answer(ids, kept, evidence=evidence, truncated=state.truncated)

    def find(self, lm: LM, state: Grounding, prompt: Prompt) -> tuple[Evidence, ...]:
        """The evidence for the prompt's question, in document order."""
        context = state.ask(lm, after_document(lm.tokenizer, prompt.question, prompt.task))
        if self.prefix:
            found = prefix.search(lm, context, state.trie, self.top_k, self.search)
        else:
            found = prefix.search_free(lm, context, state.sentence_ids, self.top_k)
        if self.skip:
            ranges = skip.decode(lm, context, state.ids, state.sentences, found.prefixes, self.d)
        else:
            ranges = [(p.sentence, skip.within(p, state.sentences, self.d)[-1]) for p in found.prefixes]
        return tuple(state.evidence(*stretch) for stretch in skip.merge(ranges, state.sentences))


@dataclass
class Grounding:
    """A document that has been read, ready for any number of questions."""

    cache: KVCache
    length: int  # slots of the opening and the document
    ids: list[int]  # of the document
    sentences: list[Sentence]
    trie: Trie
    sources: tuple[Source, ...]
    truncated: int

    @property
    def sentence_ids(self) -> list[list[int]]:
        return [self.ids[s.first : s.end] for s in self.sentences]

    def ask(self, lm: LM, request: Sequence[int]) -> prefix.Context:
        """Read a request after the document, in place of the last one."""
        self.cache.truncate(self.length)
        row = Row(request, unit_steps(self.length, len(request)), (Span(0, self.length),))
        logits = lm.extend(self.cache, [row], stage="query", last_logits=True).last_logits
        assert logits is not None
        return prefix.Context(self.cache, Span(0, self.cache.length), logits[0], float(self.cache.length))

    def evidence(self, first: int, last: int) -> Evidence:
        """The stretch from one sentence to another, without white space at its ends."""
        source = self.sources[self.sentences[first].source]
        text = source.text[self.sentences[first].start : self.sentences[last].stop]
        start = source.offset + self.sentences[first].start + len(text) - len(text.lstrip())
        stripped = text.strip()
        return Evidence(source.document, start, start + len(stripped), stripped)


def _read_document(lm: LM, cache: KVCache, ids: Sequence[int]) -> None:
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        past = (Span(0, start),) if start else ()
        lm.extend(cache, [Row(chunk, unit_steps(start, len(chunk)), past)], stage="documents", offline=True)
