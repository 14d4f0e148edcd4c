"""CFIC: chunking-free in-context retrieval (Qian et al., ACL 2024)."""

from dataclasses import dataclass

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base.grounding import Finding, Grounding, finder_of, written
from ragauge.methods.base.method import Answer, Evidence
from ragauge.methods.evidence import prefix as prefix_search
from ragauge.methods.evidence import skip
from ragauge.methods.evidence.prefix import LONGEST, Trie
from ragauge.methods.prompts import Prompt
from ragauge.options import NaturalInt, PositiveInt

PreparedDocuments = tuple[Grounding, Trie]
"""The documents as they were read, and the trie of their sentences."""


@dataclass(frozen=True)
class CFIC(Finding):
    """Search the one cached document for evidence by decoding: sentence prefixes first, then where
    each ends.

    `prepare` reads all documents as one, once and before the question is known; a document beyond
    the model's context loses its middle. `answer` reads the question, searches the `top_k`
    likeliest sentence prefixes, lets each run to the sentence end within `d` tokens after which the
    model would stop (one pass for all), and answers from these stretches, in document order, with
    the data set's prompt. They are verbatim by construction.

    Ablations (section 4.5): without `prefix`, a beam search writes sequences of 8 tokens, which are
    matched back to sentences; without `skip`, the decoder writes on from every prefix, freely and
    greedily, until it stops or has `d` tokens; without both, it writes the evidence greedily from
    the beginning, as `free_extraction` does. What it writes is evidence as written, verbatim or
    not.
    """

    top_k: PositiveInt = 3  # prefixes
    d: NaturalInt = 256  # tokens after a prefix within which evidence ends
    prefix: bool = True
    skip: bool = True
    search: prefix_search.Rule = "beam"

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> PreparedDocuments:
        row = LONGEST + self.d  # tokens of a prefix and what follows it
        reading = self.read_documents(
            engine, prompt, positions=row, slots=row + self.top_k * row, lower="d"
        )
        return reading, Trie(reading.text.sentence_ids)

    def answer(
        self, engine: SpanEngine, state: PreparedDocuments, prompt: Prompt, limits: Limits
    ) -> Answer:
        return state[0].answer(engine, prompt, self.find(engine, state, prompt), limits)

    def find(
        self, engine: SpanEngine, state: PreparedDocuments, prompt: Prompt
    ) -> tuple[Evidence, ...]:
        """Return the evidence for the prompt's question, in document order."""
        finder = finder_of(engine)
        (reading, trie) = state
        if not self.prefix and not self.skip:
            return reading.written(finder, prompt, max(1, self.d))
        text = reading.text
        context = reading.ask(finder, prompt)
        if self.prefix:
            prefixes = prefix_search.search(finder, context, trie, self.top_k, self.search)
        else:
            prefixes = prefix_search.search_free(finder, context, text.sentence_ids, self.top_k)
        if self.skip:
            return text.evidence(
                skip.decode(finder, context, text.ids, text.sentences, prefixes, self.d)
            )
        ordered = sorted(prefixes, key=lambda prefix: prefix.sentence)
        beginnings = [text.sentence_ids[prefix.sentence][: prefix.tokens] for prefix in ordered]
        passages = skip.write_on(finder, context, ordered, beginnings, self.d)
        texts = map(finder.tokenizer.decode, passages)
        pieces = [
            piece for passage in texts for piece in written(passage, prompt.sources, self.sentences)
        ]
        return tuple(dict.fromkeys(pieces))
