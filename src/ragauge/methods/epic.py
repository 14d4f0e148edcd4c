"""EPIC's LegoLink (Hu et al., ICML 2025, arXiv 2410.15332)."""

from dataclasses import dataclass, replace

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.stored import Assembled, Reuse, Stored, read_apart
from ragauge.methods.prompts import Prompt
from ragauge.options import NaturalInt


@dataclass(frozen=True)
class Epic(Reuse):
    """Stored documents in their places; the first `tokens` of each are read again with the
    question, at all layers.

    Section 4 of the paper (LegoLink-k); released code: DerekHJH/epic,
    `benchmarks_ours/evals/e2e/main.py`, where it is "kvlink-k". A document's first tokens draw
    attention because they were first; read again in their places they lose that role. With 0 tokens
    (LegoLink-0) documents are read behind a begin of text which is then dropped, and nothing is
    read again but the question. The paper's documents carry a begin of text each because their
    tokenizer writes it; here the prompt is every method's, unless `bos`. The preamble is the
    paper's first segment and never read again. Requires tokens to be rewritten in place and keys to
    be moved.
    """

    tokens: NaturalInt = 16  # first tokens of a document that are read again
    # every document begins with a copy of the prompt's first token, which stays in the prompt
    bos: bool = False

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, self.delimited(engine, prompt), behind=int(self.tokens == 0))

    def chosen(self, assembled: Assembled) -> list[int]:
        return [slot for span in assembled.documents for slot in range(*span)[: self.tokens]]

    def delimited(self, engine: SpanEngine, prompt: Prompt) -> Prompt:
        if not self.bos:
            return prompt
        return replace(prompt, documents=[[prompt.preamble[0], *ids] for ids in prompt.documents])
