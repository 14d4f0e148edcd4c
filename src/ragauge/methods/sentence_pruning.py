"""Sentence pruning: Provence (Chirkova et al., ICLR 2025) and DSLR (Hwang et al., 2024)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from ragauge.engines.protocol import Capability, Engine, Limits
from ragauge.evidence.sentences import Splitter, boundaries_of, split
from ragauge.methods.base import Answer, Method, read_plain, traced
from ragauge.methods.base.ranked import embed
from ragauge.prompts import Prompt
from ragauge.rankers import bm25

if TYPE_CHECKING:
    from ragauge.rankers.cross_encoder import CrossEncoder


@dataclass(frozen=True)
class SplitDocuments:
    """A prompt's documents as it shows them: what stands before each text, and its sentences, ends included."""

    headers: list[str]
    sentences: list[list[str]]
    texts: list[str]  # to score: each document, then each sentence of each behind its header
    vectors: np.ndarray | None = None  # of the texts, for dense scores (text, dim)


@dataclass(frozen=True)
class SentencePruning(Method):
    """A plain prompt of the documents ranked first, without the sentences that score below a threshold.

    Provence (arXiv 2501.16214; code: naver/bergen, `models/context_processors/provence.py`) ranks documents and prunes
    the best 5 with one encoder: a sentence stays if the mean probability of its tokens exceeds the threshold, a title
    stays with any sentence. Its checkpoints need code from the hub, which is not run. So each sentence is scored by
    itself, behind its title, as DSLR (arXiv 2407.03627) does without training, by a ranker that also ranks the
    documents: `reranker`, a cross-encoder, by the sigmoid of its logit; or `ranker`, by cosines (negative ones as 0) or
    by 2/pi atan of BM25, all ours. With a threshold of 0 it is the ranked prompt; a document without a sentence
    left is left out, if need be all of them. Only the prompt changes: any engine that reads text will do.
    """

    requires = frozenset({Capability.TEXT, Capability.WEIGHTS})

    top_k: Annotated[int, Field(ge=1)] = 5  # documents that are pruned and read
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5  # the least score of a sentence that stays
    ranker: Literal["dense", "bm25"] = "dense"
    encoder: str = "minilm"  # of the dense ranker: an asset's name or source
    reranker: str = ""  # in place of the ranker: a cross-encoder's source, such as "hf:org/name"
    sentences: Splitter = "sentencex"  # what splits them; the released code takes "punkt"

    def assets(self) -> tuple[str, ...]:
        return (self.reranker,) if self.reranker else (self.encoder,) if self.ranker == "dense" else ()

    def unsupported(self, engine: Engine) -> str | None:
        boundaries_of(self.sentences)  # raises where its package is missing
        return None

    def prepare(self, engine: Engine, prompt: Prompt) -> SplitDocuments:
        headers, sentences = zip(*(self._split(prompt, i) for i in range(len(prompt.documents))), strict=True)
        behind = [head + one.strip() for head, ones in zip(headers, sentences, strict=True) for one in ones]
        made = SplitDocuments(list(headers), list(sentences), [*prompt.document_texts, *behind])
        if self.reranker:
            self._cross_encoder()  # loaded here, not when the first question is timed
        elif self.ranker == "dense":
            return replace(made, vectors=embed(engine, self.encoder, made.texts, offline=True))
        return made

    def answer(self, engine: Engine, state: SplitDocuments, prompt: Prompt, limits: Limits) -> Answer:
        first = list(accumulate(map(len, state.sentences), initial=len(prompt.documents)))
        score = self._scorer(engine, prompt.question, state)
        scores = score(range(len(prompt.documents)))
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.top_k]
        numbers = [number for i in order for number in range(first[i], first[i + 1])]
        stays = dict(zip(numbers, score(numbers) >= self.threshold, strict=True))
        shown: dict[int, list[int] | str] = {}
        for i in order:
            left = [one for number, one in enumerate(state.sentences[i], first[i]) if stays[number]]
            if left == state.sentences[i]:
                shown[i] = prompt.documents[i]
            elif left:
                last = state.sentences[i][-1]
                end = last[len(last.rstrip()) :] + prompt.document_end
                shown[i] = state.headers[i] + "".join(left).rstrip() + end
        ids = read_plain(engine, prompt, shown.values(), limits)
        return Answer(ids, tuple(shown), tuple(map(float, scores)))

    def _split(self, prompt: Prompt, number: int) -> tuple[str, list[str]]:
        """What stands before a document's text, and the text's sentences."""
        text = prompt.text.documents[number] if prompt.text else prompt.document_texts[number]
        header = prompt.document_texts[number].removesuffix(prompt.sources[number].text) if prompt.sources else ""
        header = header if text.startswith(header) else ""  # of a document that lost its beginning
        body = text.removesuffix(prompt.document_end).removeprefix(header)
        return header, [body[start:stop] for start, stop in split(body, self.sentences)]

    def _cross_encoder(self) -> CrossEncoder:
        from ragauge.rankers.cross_encoder import load_cross_encoder

        return load_cross_encoder(self.reranker)

    def _scorer(self, engine: Engine, question: str, state: SplitDocuments) -> Callable[[Sequence[int]], np.ndarray]:
        """A function that scores some of the texts, by number, sentences from 0 to 1."""
        if state.vectors is not None:
            vector = embed(engine, self.encoder, [question], query=True, offline=False)[0]
            products: np.ndarray = state.vectors @ vector
            vectors, sentences = state.vectors[len(state.headers) :], products[len(state.headers) :]
            sentences[:] = (sentences / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector))).clip(0, 1)
            return lambda numbers: products[list(numbers)]

        def score(numbers: Sequence[int]) -> np.ndarray:
            texts = [state.texts[number] for number in numbers]
            model = self._cross_encoder() if self.reranker else None
            with traced(engine, "rank", macs=model.pair_macs(question, texts) if model else 0):
                if model:
                    return np.exp(-np.logaddexp(0, -model.scores(question, texts)))
                return np.arctan(bm25.rank(question, texts, idf="lucene")) * 2 / np.pi

        return score
