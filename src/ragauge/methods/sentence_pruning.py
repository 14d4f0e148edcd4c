"""Sentence pruning: Provence (Chirkova et al., ICLR 2025) and DSLR (Hwang et al., 2024)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from ragauge.engines.protocol import ANSWERING, Engine, Limits
from ragauge.methods.base.method import Answer, Method, read_plain, traced
from ragauge.methods.base.ranked import as_share, bm25_scores, cosines, embed, embed_question
from ragauge.methods.evidence.sentences import split
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveInt, Share

State = tuple[list[tuple[str, list[str]]], list[str], np.ndarray | None]
"""Each document's title and sentences; documents, then sentences behind titles, to score; their
vectors (text, dim).
"""


@dataclass(frozen=True)
class SentencePruning(Method):
    """A plain prompt of the documents ranked first, without the sentences that score below a
    threshold.

    Provence (arXiv 2501.16214; code: naver/bergen, `models/context_processors/provence.py`) ranks
    documents and prunes the best 5 with one encoder: a sentence stays if the mean probability of
    its tokens exceeds the threshold, a title stays with any sentence. Its checkpoints need code
    from the hub, which is not run. So each sentence is scored alone, behind its title, as DSLR
    (arXiv 2407.03627) does without training, by what also ranks the documents: `reranker`, a
    cross-encoder, as the sigmoid of its logit; or `ranker`, as a cosine (from 0) or 2/pi atan of
    BM25; these scores are choices of this
    implementation. With a threshold of 0 it is the ranked prompt; a document without a sentence
    left is left out, if need be all of them.
    """

    requires = ANSWERING
    state = "documents"

    top_k: PositiveInt = 5  # documents that are pruned and read
    threshold: Share = 0.5  # the least score of a sentence that stays
    ranker: Literal["dense", "bm25"] = "dense"
    encoder: str = "minilm"  # of the dense ranker: an asset's name or source
    reranker: str = ""  # in place of the ranker: a cross-encoder's source, such as "hf:org/name"

    def assets(self) -> tuple[str, ...]:
        if self.reranker:
            return (self.reranker,)
        return (self.encoder,) if self.ranker == "dense" else ()

    def prepare(self, engine: Engine, prompt: Prompt) -> State:
        parts = [_parts(prompt, i) for i in range(len(prompt.documents))]
        behind_titles = [
            title + sentence.strip() for title, sentences in parts for sentence in sentences
        ]
        texts = [*prompt.document_texts, *behind_titles]
        if self.reranker:
            _cross_encoder(self.reranker)  # loaded here, not when the first question is timed
        elif self.ranker == "dense":
            return parts, texts, embed(engine, self.encoder, texts, offline=True)
        return parts, texts, None

    def answer(self, engine: Engine, state: State, prompt: Prompt, limits: Limits) -> Answer:
        parts = state[0]
        count = len(prompt.documents)
        first = list(accumulate((len(sentences) for _, sentences in parts), initial=count))
        score = self._scorer(engine, state, prompt)
        scores = score(range(count))
        order = sorted(range(count), key=lambda i: -scores[i])[: self.top_k]
        numbers = [number for i in order for number in range(first[i], first[i + 1])]
        stays = dict(zip(numbers, score(numbers) >= self.threshold, strict=True))
        shown: dict[int, list[int] | str] = {}
        for i in order:
            title, sentences = parts[i]
            remaining = [text for number, text in enumerate(sentences, first[i]) if stays[number]]
            if remaining == sentences:
                shown[i] = prompt.documents[i]
            elif remaining:
                end = sentences[-1][len(sentences[-1].rstrip()) :] + prompt.document_end
                shown[i] = title + "".join(remaining).rstrip() + end
        return Answer(
            read_plain(engine, prompt, shown.values(), limits),
            tuple(shown),
            tuple(map(float, scores)),
        )

    def _scorer(
        self, engine: Engine, state: State, prompt: Prompt
    ) -> Callable[[Sequence[int]], np.ndarray]:
        """Return a function that scores some of the texts, by number, sentences from 0 to 1."""
        _, texts, vectors = state
        question = prompt.question
        count = len(prompt.documents)
        if vectors is not None:
            vector = embed_question(engine, self.encoder, question)
            products = vectors @ vector
            products[count:] = cosines(vectors[count:], vector).clip(0)
            return lambda numbers: products[list(numbers)]

        def score(numbers: Sequence[int]) -> np.ndarray:
            some = [texts[number] for number in numbers]
            if not self.reranker:
                return as_share(bm25_scores(engine, question, some))
            model = _cross_encoder(self.reranker)
            with traced(engine, "rank", macs=model.pair_macs(question, some)):
                return np.exp(-np.logaddexp(0, -model.scores(question, some)))

        return score


def _parts(prompt: Prompt, number: int) -> tuple[str, list[str]]:
    text = prompt.text.documents[number] if prompt.text else prompt.document_texts[number]
    title = (
        prompt.document_texts[number].removesuffix(prompt.sources[number].text)
        if prompt.sources
        else ""
    )
    title = title if text.startswith(title) else ""  # of a document that lost its beginning
    body = text.removesuffix(prompt.document_end).removeprefix(title)
    return title, [body[start:stop] for start, stop in split(body)]


def _cross_encoder(source: str) -> Any:
    from ragauge.methods.rankers.cross_encoder import load_cross_encoder

    return load_cross_encoder(source)
