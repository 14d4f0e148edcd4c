"""CFIC: chunking-free in-context retrieval (Qian et al., ACL 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.evidence import prefix as prefix_search
from ragauge.evidence import skip
from ragauge.evidence.prefix import LONGEST, Trie
from ragauge.evidence.request import REQUESTS, Wording
from ragauge.methods.base import Answer, Evidence, Method, generate
from ragauge.methods.base.grounding import FINDING, Grounding, answer_from, finder_of, read_documents, why_not, written
from ragauge.prompts import Prompt


@dataclass(frozen=True)
class CFIC(Method):
    """Search the one cached document for evidence by decoding: sentence prefixes first, then where each ends.

    `prepare` reads all documents as one, once and before the question is known; a document beyond the model's context
    loses its middle. `answer` reads the question, searches the `top_k` likeliest sentence prefixes, lets each run to
    the sentence end within `d` tokens after which the model would stop (one pass for all), and answers from these
    stretches, in document order, with the data set's prompt. They are verbatim by construction.

    Ablations (section 4.5): without `prefix`, a beam search writes sequences of 8 tokens, which are matched back to
    sentences; without `skip`, the decoder writes on from every prefix, freely and greedily, until it stops or has `d`
    tokens; without both, it writes the evidence greedily from the beginning, as `free_extraction` does. What it writes
    is evidence as written, verbatim or not.
    """

    finds = True
    requires = FINDING

    top_k: Annotated[int, Field(ge=1)] = 3  # prefixes
    d: Annotated[int, Field(ge=0)] = 256  # tokens after a prefix within which evidence ends
    prefix: bool = True
    skip: bool = True
    search: prefix_search.Rule = "beam"
    request: Wording = "paper"  # Table 2's words; "copy" is this project's, for models that were not trained

    def unsupported(self, engine: SpanEngine) -> str | None:
        return why_not(engine)

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> PreparedDocuments:
        row = LONGEST + self.d  # tokens of a prefix and what follows it
        rows, wording = row + self.top_k * row, REQUESTS[self.request]
        reading = read_documents(finder_of(engine), prompt, wording, positions=row, slots=rows, lower="d")
        return PreparedDocuments(reading, Trie(reading.text.sentence_ids))

    def answer(self, engine: SpanEngine, state: PreparedDocuments, prompt: Prompt, limits: Limits) -> Answer:
        evidence, reading = self.find(engine, state, prompt), state.reading
        request = reading.wording.text(prompt.question)
        return answer_from(engine, prompt, evidence, reading.text.truncated, limits, request)

    def find(self, engine: SpanEngine, state: PreparedDocuments, prompt: Prompt) -> tuple[Evidence, ...]:
        """The evidence for the prompt's question, in document order."""
        finder, text = finder_of(engine), state.reading.text
        context = state.reading.ask(finder, prompt)
        if not self.prefix and not self.skip:
            at_most = Limits(max(1, self.d), stop=())
            ids = generate(finder, context.cache, context.logits[None], context.position, at_most)
            return tuple(written(finder.tokenizer.decode(ids, skip_special_tokens=True), prompt.sources))
        if self.prefix:
            prefixes = prefix_search.search(finder, context, state.trie, self.top_k, self.search)
        else:
            prefixes = prefix_search.search_free(finder, context, text.sentence_ids, self.top_k)
        if self.skip:
            return text.evidence(skip.decode(finder, context, text.ids, text.sentences, prefixes, self.d))
        ordered = sorted(prefixes, key=lambda prefix: prefix.sentence)
        beginnings = [text.sentence_ids[prefix.sentence][: prefix.tokens] for prefix in ordered]
        passages = skip.write_on(finder, context, ordered, beginnings, self.d)
        pieces = [piece for ids in passages for piece in written(finder.tokenizer.decode(ids), prompt.sources)]
        return tuple(dict.fromkeys(pieces))


@dataclass(frozen=True)
class PreparedDocuments:
    """The documents as they were read, and the trie of their sentences."""

    reading: Grounding
    trie: Trie
