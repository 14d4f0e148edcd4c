"""Chunk and rank: CFIC's chunking baselines."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ragauge.engines.protocol import Capability, Engine, Limits
from ragauge.methods.base.grounding import NO_OFFSETS, GroundingText, answer_from, sentences_of
from ragauge.methods.base.method import Answer, Method
from ragauge.methods.base.ranked import bm25_scores, embed, embed_question
from ragauge.methods.evidence import chunks
from ragauge.methods.evidence.sentences import Splitter, boundaries_of
from ragauge.methods.evidence.skip import Range
from ragauge.methods.prompts import Prompt
from ragauge.methods.rankers import shortest
from ragauge.options import PositiveInt

Cut = tuple[GroundingText, list[Range], list[str], np.ndarray | None]
"""Documents; first and last sentence of each chunk; the chunks' texts; of dense rankers their
vectors (chunk, dim).
"""


@dataclass(frozen=True)
class Chunks(Method):
    """The documents are cut into chunks, a ranker scores them, the answer is generated from the
    best.

    `volume` makes evidence comparable across methods: the best chunks are taken up to that many
    tokens, the last one cut at a sentence end. The default is what CFIC gives on average in the
    paper (230 and 233 tokens, Table 6), rounded up.
    """

    requires = frozenset({Capability.TEXT, Capability.WEIGHTS})
    state = "documents"

    chunking: Literal["sliding_window", "paragraph"] = "sliding_window"
    # what ends a paragraph; the paper's is the first
    paragraph_end: Literal["newline", "blank_line"] = "newline"
    # of a window; longer paragraphs are cut at sentence ends
    words: PositiveInt = 256
    ranker: Literal["dense", "bm25", "shortest"] = "dense"
    encoder: str = "minilm"  # of the dense ranker: an asset's name or source
    volume: PositiveInt = 256  # tokens of evidence at most
    sentences: Splitter = "sentencex"  # what splits them; the released code takes "punkt"

    def assets(self) -> tuple[str, ...]:
        return (self.encoder,) if self.ranker == "dense" else ()

    def unsupported(self, engine: Engine) -> str | None:
        boundaries_of(self.sentences)  # raises where its package is missing
        return None if engine.tokenizer.is_fast else NO_OFFSETS

    def prepare(self, engine: Engine, prompt: Prompt) -> Cut:
        text = sentences_of(engine, self.sentences, prompt.sources)
        if self.chunking == "paragraph":
            ranges = chunks.paragraphs(text.sources, text.sentences, self.words, self.paragraph_end)
        else:
            ranges = chunks.sliding_windows(text.sources, text.sentences, self.words)
        texts = [chunks.text_of(chunk, text.sources, text.sentences) for chunk in ranges]
        vectors = embed(engine, self.encoder, texts, offline=True) if self.assets() else None
        return text, ranges, texts, vectors

    def answer(self, engine: Engine, state: Cut, prompt: Prompt, limits: Limits) -> Answer:
        text, ranges, texts, vectors = state
        if vectors is not None:
            scores = vectors @ embed_question(engine, self.encoder, prompt.question)
        elif self.ranker == "bm25":
            scores = bm25_scores(engine, prompt.question, texts)
        else:
            scores = shortest.rank(prompt.question, texts)
        # of equal ones the earlier first
        ranked = [ranges[i] for i in np.argsort(-scores, kind="stable")]
        evidence = text.evidence(chunks.within(ranked, text.sentences, self.volume))
        return answer_from(engine, prompt, evidence, 0, limits)
