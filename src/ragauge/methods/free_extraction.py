"""Evidence that a long-context model generates without constraints, as CFIC's chunking-free baselines do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from ragauge.engines.protocol import Capabilities, Limits, SpanEngine
from ragauge.evidence.sentences import split
from ragauge.methods._base import Answer, Evidence, Method, generate
from ragauge.methods._grounding import FINDING, Grounding, answer_from, finder_of, read_documents, why_not
from ragauge.prompts import Prompt, Source


@dataclass(frozen=True)
class FreeExtraction(Method):
    """CFIC's request to the same cached document, answered by greedy decoding that nothing constrains.

    Vicuna, LongChat and LongAlpaca in the paper's Table 3; on CFIC's own model it is CFIC without its two decoding
    strategies in Table 6. Every generated sentence is a piece of evidence; one that occurs verbatim in no document has
    no position. The answer is generated from all of them, as generated.
    """

    finds: ClassVar[bool] = True
    requires: ClassVar[Capabilities] = FINDING

    volume: Annotated[int, Field(ge=1)] = 256  # tokens of evidence at most

    def unsupported(self, engine: SpanEngine) -> str | None:
        return why_not(engine)

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Grounding:
        return read_documents(finder_of(engine), prompt, positions=self.volume, slots=self.volume, lower="volume")

    def answer(self, engine: SpanEngine, state: Grounding, prompt: Prompt, limits: Limits) -> Answer:
        finder = finder_of(engine)
        context = state.ask(finder, prompt)
        at_most = Limits(self.volume, stop=(), ignore_stop=False)
        ids = generate(finder, context.cache, context.logits[None], context.position, at_most)
        written: str = engine.tokenizer.decode(ids, skip_special_tokens=True)
        evidence = [_placed(sentence, prompt.sources) for sentence in _sentences(written)]
        return answer_from(engine, prompt, evidence, state.text.truncated, limits)


def _sentences(text: str) -> list[str]:
    """The sentences of a text, line by line, without white space at their ends."""
    found = [line[start:stop].strip() for line in text.split("\n") for start, stop in split(line)]
    return [sentence for sentence in found if sentence]


def _placed(text: str, sources: tuple[Source, ...]) -> Evidence:
    """The text at the first place where a document has it; without a place where none does."""
    for source in sources:
        start = source.text.find(text)
        if start >= 0:
            at = source.offset + start
            return Evidence(source.document, at, at + len(text), text)
    return Evidence(None, None, None, text)
