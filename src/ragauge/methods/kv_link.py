"""KVLink (Yang et al., 2025, arXiv 2502.16002): trained link tokens join documents that were read
apart.
"""

from dataclasses import dataclass, replace
from itertools import accumulate

from ragauge.engines.protocol import Limits, Row, Span, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base.method import Answer
from ragauge.methods.base.stored import Reuse, Stored
from ragauge.methods.prompts import Prompt, unit_steps
from ragauge.options import NaturalInt


@dataclass(frozen=True)
class KVLink(Reuse):
    """Stored documents in their places, each followed by link tokens, which see all that stands
    before them.

    Section 3 of the paper; released code: UCSB-NLP-Chang/KVLink, `src/data/titan_preprocessor.py`.
    Every place of a document in a prompt has links of its own, ids from `first_link` on; they are
    read with the question, so that what a document lacks of the others before it can pass through
    them. The prompt has a token before the first document and one behind the last document's links.
    The defaults are reserved tokens of Llama 3, on which the published models (catalog: kvlink-1b,
    kvlink-3b) were trained, with 5 links; without links (KVLink-0) it is `naive_reuse` between
    these two tokens. On a model that was not trained so, links are noise. Requires keys to be
    moved.
    """

    links: NaturalInt = 5  # link tokens behind each document
    first_link: NaturalInt = 128011  # id of the first document's first link
    begin: NaturalInt = 128254  # id of the token before the documents
    end: NaturalInt = 128255  # id of the token behind them

    def unsupported(self, engine: SpanEngine) -> str | None:
        largest = max(self.first_link + self.links, self.begin, self.end)
        if largest < engine.shape.vocab:
            return None
        return f"token ids up to {largest}; the model has {engine.shape.vocab}; it must be trained with links"

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        last = self.first_link + self.links * len(prompt.documents) - 1
        taken = [token for token in (self.begin, self.end) if self.first_link <= token <= last]
        if last >= engine.shape.vocab or taken:
            raise UserError(
                f"kv_link: {len(prompt.documents)} documents: link tokens up to id {last} are not free"
            )
        return super().prepare(engine, prompt)

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        delimited = self.delimited(engine, prompt)
        count = len(prompt.documents)
        assembled = state.assembled(delimited, limits, gap=self.links)
        lengths = (len(ids) + self.links for ids in delimited.documents)
        _, *stops = accumulate(lengths, initial=len(delimited.preamble))
        ids = [*range(self.first_link, self.first_link + self.links * count), *delimited.ending]
        positions = [place for stop in stops for place in unit_steps(stop - self.links, self.links)]
        positions += unit_steps(stops[-1], len(delimited.ending))
        slots = range(assembled.length, assembled.length + len(ids))
        row = Row(ids, positions, (Span(0, assembled.length),), slots)
        read = engine.extend(assembled.cache, [row], stage="prompt", last_logits=True)
        return assembled.response(read, limits)

    def delimited(self, engine: SpanEngine, prompt: Prompt) -> Prompt:
        return replace(
            prompt, preamble=[*prompt.preamble, self.begin], query=[self.end, *prompt.query]
        )
