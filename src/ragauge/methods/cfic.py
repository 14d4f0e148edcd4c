"""CFIC: chunking-free in-context retrieval (Qian et al., ACL 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ragauge.engines.protocol import Capabilities, Limits, SpanEngine
from ragauge.evidence import prefix, skip
from ragauge.evidence.trie import LONGEST, Trie
from ragauge.methods._base import Answer, Evidence, Method
from ragauge.methods._grounding import FINDING, Grounding, answer_from, finder_of, read_documents, why_not
from ragauge.prompts import Prompt


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

    finds: ClassVar[bool] = True
    requires: ClassVar[Capabilities] = FINDING

    top_k: Annotated[int, Field(ge=1)] = 3  # prefixes
    d: Annotated[int, Field(ge=0)] = 256  # tokens after a prefix within which evidence ends
    prefix: bool = True
    skip: bool = True
    search: Literal["beam", "first_token"] = "beam"  # "first_token" is the released code's greedy choice

    def unsupported(self, engine: SpanEngine) -> str | None:
        return why_not(engine)

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Prepared:
        row = LONGEST + self.d  # a prefix and what follows it
        reading = read_documents(finder_of(engine), prompt, positions=row, slots=row + self.top_k * row, lower="d")
        return Prepared(reading, Trie(reading.text.sentence_ids))

    def answer(self, engine: SpanEngine, state: Prepared, prompt: Prompt, limits: Limits) -> Answer:
        return answer_from(engine, prompt, self.find(engine, state, prompt), state.reading.text.truncated, limits)

    def find(self, engine: SpanEngine, state: Prepared, prompt: Prompt) -> tuple[Evidence, ...]:
        """The evidence for the prompt's question, in document order."""
        finder, text = finder_of(engine), state.reading.text
        context = state.reading.ask(finder, prompt)
        if self.prefix:
            found = prefix.search(finder, context, state.trie, self.top_k, self.search)
        else:
            found = prefix.search_free(finder, context, text.sentence_ids, self.top_k)
        if self.skip:
            return text.evidence(skip.decode(finder, context, text.ids, text.sentences, found.prefixes, self.d))
        return text.evidence([(p.sentence, skip.within(p, text.sentences, self.d)[-1]) for p in found.prefixes])


@dataclass(frozen=True)
class Prepared:
    """The documents as they were read, and what may be said of them."""

    reading: Grounding
    trie: Trie
