"""PCED, parallel context-of-experts decoding (arXiv 2601.08670, Findings of ACL 2026)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from ragauge.engines.protocol import Limits, Span, SpanEngine
from ragauge.methods.base.method import SPANS, Answer, Method, unit_row
from ragauge.methods.base.ranked import as_share, bm25_scores, cosines, embed, embed_question
from ragauge.methods.base.windows import ReadWindows, read_windows, split_paths
from ragauge.methods.prompts import PREAMBLE, Prompt

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_PRIOR = 1e-12  # of a document that a ranker scores 0
Beta = Literal["paper", "released", "none"]
_State = tuple[ReadWindows, np.ndarray | None]  # and the documents' embeddings (document, dim)


@dataclass(frozen=True)
class ParallelExperts(Method):
    """Every document is an expert with a prompt of its own; each next token is the one that any
    expert is surest of.

    Section 3 of the paper; released code: giulio98/langchain-pced, `core/decode_cb.py`,
    `utils/scoring.py`. Expert k has logits s_k, the prompt without documents ("amateur") s_0; the
    token is the argmax over all k of (1 + beta_k) s_k - beta_k s_0 + gamma log r_k, and every
    stream goes on with it. beta_k is the Jensen-Shannon divergence of the first token's
    distributions in nats, at most 1; the released code does not sum it, so that it has a value for
    each entry of the vocabulary. r_k is the document's retrieval score in (0, 1]: BM25's x as 2/pi
    atan x, cosines as (x + 1) / 2, both rankers as their harmonic mean, which stands for the
    paper's retriever and reranker. Positions are each stream's own. Requires rows of their own past
    read side by side, and tokens chosen by the method.
    """

    requires = SPANS
    state = "documents"

    # one value a document; "released": one an entry of the vocabulary; "none": no amateur
    beta: Beta = "paper"
    gamma: Annotated[float, Field(ge=0)] = 2.5  # weight of the retrieval score
    # where r comes from; "equal": no prior
    scores: Literal["bm25", "dense", "both", "equal"] = "bm25"
    encoder: str = "minilm"  # of dense scores: an asset's name or source

    def assets(self) -> tuple[str, ...]:
        return (self.encoder,) if self.scores in ("dense", "both") else ()

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> _State:
        windows = read_windows(engine, prompt, split_paths(len(prompt.documents)), sees="preamble")
        texts = prompt.document_texts
        vectors = embed(engine, self.encoder, texts, offline=True) if self.assets() else None
        return windows, vectors

    def answer(self, engine: SpanEngine, state: _State, prompt: Prompt, limits: Limits) -> Answer:
        windows, vectors = state
        prior = self._prior(engine, vectors, prompt)
        streams = _Streams(engine, windows, prompt, amateur=self.beta != "none")
        first = streams.read(prompt.ending, "query")
        beta = _divergence(first, self.beta)
        bias = self.gamma * first.new_tensor(prior).log()[:, None]

        def choose(ids: list[int]) -> int:
            logits = streams.read(ids[-1:], "decode") if ids else first
            experts = logits[: len(prior)]
            contrasted = (
                experts if self.beta == "none" else (1 + beta) * experts - beta * logits[-1:]
            )
            return int((contrasted + bias).max(0).values.argmax())

        ids = engine.generate_by(choose, max(streams.positions), limits)
        return Answer(ids, tuple(range(len(prior))), tuple(prior))

    def _prior(self, engine: SpanEngine, vectors: np.ndarray | None, prompt: Prompt) -> list[float]:
        """Return the retrieval score r of each document."""
        if self.scores == "equal":
            return [1.0] * len(prompt.documents)
        scores = []
        if self.scores != "dense":
            scores.append(as_share(bm25_scores(engine, prompt.question, prompt.document_texts)))
        if vectors is not None:
            vector = embed_question(engine, self.encoder, prompt.question)
            scores.append((cosines(vectors, vector) + 1) / 2)
        prior = scores[0]
        if len(scores) == 2:
            by_words, by_meaning = scores
            prior = 2 * by_words * by_meaning / (by_words + by_meaning + 1e-8)
        return np.clip(prior, SMALLEST_PRIOR, 1.0).astype(float).tolist()


class _Streams:
    """A prompt for each document and, as the last one, one without documents; all go on with the
    same tokens.
    """

    def __init__(
        self, engine: SpanEngine, windows: ReadWindows, prompt: Prompt, amateur: bool
    ) -> None:
        reading = windows.reading.again()
        preamble = reading.spans[PREAMBLE]
        start = len(prompt.preamble)
        self.engine = engine
        self.cache = reading.cache
        self.pasts: list[list[Span]] = [[preamble, span] for span in windows.spans]
        self.positions = [start + len(ids) for ids in prompt.documents]
        if amateur:
            self.pasts.append([preamble])
            self.positions.append(start)

    def read(self, ids: Sequence[int], stage: str) -> Tensor:
        """Read tokens in every stream; the logits of the last one, in fp32: (stream, vocab)."""
        rows = [
            unit_row(ids, at, past) for past, at in zip(self.pasts, self.positions, strict=True)
        ]
        # of single tokens, a mask over the whole cache costs less than a copy of each stream's part
        tree = len(ids) == 1
        read = self.engine.extend(
            self.cache, rows, stage=stage, parallel=True, last_logits=True, tree=tree
        )
        for past, span in zip(self.pasts, read.spans, strict=True):
            past.append(span)
        self.positions = [at + len(ids) for at in self.positions]
        assert read.last_logits is not None
        return read.last_logits.float()


def _divergence(logits: Tensor, kind: Beta) -> Tensor:
    """beta: Jensen-Shannon divergence of each expert's distribution from the last row's, (expert, 1
    or vocab).
    """
    # finite: 0 times infinity, of a probability of 0, is NaN
    logp = logits.log_softmax(-1).clamp(min=-1e4)
    expert = logp[:-1]
    amateur = logp[-1:]
    middle = expert.logaddexp(amateur) - math.log(2)
    parts = (expert.exp() * (expert - middle) + amateur.exp() * (amateur - middle)) / 2
    return (parts if kind == "released" else parts.sum(-1, keepdim=True)).clamp(0, 1)
