"""ProphetKV (arXiv 2602.02579, ICML 2026), with FusionRAG's score and neighbours (arXiv 2601.12904,
SIGMOD 2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ragauge.engines.protocol import Span, SpanEngine
from ragauge.methods.base.method import State, plain_row
from ragauge.methods.base.ranked import embed
from ragauge.methods.base.stored import Assembled, Reuse, Stored
from ragauge.methods.prompts import Prompt, unit_steps
from ragauge.options import NaturalInt, Share

if TYPE_CHECKING:
    from torch import Tensor

Score = Literal["mean", "last_layer"]


@dataclass(frozen=True)
class ProphetKV(Reuse):
    """Stored documents in their places; the question, read over them once, chooses which tokens are
    read again.

    Algorithm 1 of the paper; no released code was found. The question's attention on preamble and
    documents, its own keys left out of the softmax, is averaged over its tokens, heads and layers;
    the share `recompute` of the documents' tokens that it falls on most is read again with the
    question, through all layers, and the first reading of the question is dropped. `score` =
    last_layer is FusionRAG's: products of queries and keys, summed over the question and heads, of
    the last layer alone (its share is 0.15). `neighbours` is FusionRAG's other half: offline, a
    document is read again behind its most similar ones among the question's documents, found by
    `encoder` (theirs: BGE-M3), so that what is stored has seen them. Requires watched queries,
    tokens rewritten in place and keys moved.
    """

    recompute: Share = 0.2  # share of the documents' tokens
    score: Score = "mean"
    # documents that a document is read behind; FusionRAG: about 10
    neighbours: NaturalInt = 0
    encoder: str = "minilm"  # that finds neighbours: an asset's name or source

    def assets(self) -> tuple[str, ...]:
        return (self.encoder,) if self.neighbours else ()

    def usable_state(self) -> State:
        return "set" if self.neighbours else self.state

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        stored = super().prepare(engine, prompt)
        if not self.neighbours:
            return stored
        vectors = embed(engine, self.encoder, prompt.document_texts, offline=True)
        similar = vectors @ vectors.T
        np.fill_diagonal(similar, -np.inf)
        count = min(self.neighbours, len(vectors) - 1)
        nearest = [
            sorted(range(len(row)), key=row.__getitem__)[len(row) - count :]
            for row in similar.tolist()
        ]
        return _read_behind(stored, nearest, prompt)

    def chosen(self, assembled: Assembled) -> list[int]:
        span = assembled.document_slots
        scores = _question_scores(assembled, self.score)[span.start :]
        return assembled.largest(scores, self.recompute)


def _question_scores(assembled: Assembled, score: Score) -> Tensor:
    """Measure how much the question attends to each slot of preamble and documents: (slot,)."""
    import torch

    engine = assembled.engine
    cache = assembled.cache
    length = assembled.length
    last = engine.shape.layers - 1
    totals = torch.zeros(length, device=cache.positions.device)

    def watch(layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
        from ragauge.engines.decoder import scores

        if score == "mean":
            shown = None if bias is None else bias[..., :length]
            weights = scores(q, k[:, :, :length], shown).softmax(-1)
            totals.add_(
                weights.sum((0, 1, 2)) / (q.shape[1] * len(assembled.question) * (last + 1))
            )
        elif layer == last:
            totals.add_(scores(q, k[:, :, :length], None).sum((0, 1, 2)))

    cache.watch = watch
    engine.extend(cache, [assembled.question_row()], stage="query")
    cache.watch = None
    cache.truncate(length)
    return totals


def _read_behind(stored: Stored, nearest: list[list[int]], prompt: Prompt) -> Stored:
    """Return the same documents, each read again behind the nearest ones (the last the nearest),
    side by side from 0.
    """
    engine = stored.engine
    source = stored.cache
    cache = engine.join(source, [stored.preamble], sum(map(len, stored.documents)))
    origins = []
    for ids, before in zip(prompt.documents, nearest, strict=True):
        spans = [stored.documents[j] for j in before]
        start = sum(map(len, spans))
        context = engine.join(source, spans, len(ids))
        if spans:
            context.move(Span(0, start), unit_steps(0, start))
        [span] = engine.extend(
            context, [plain_row(ids, start)], stage="documents", offline=True
        ).spans
        cache.append(context, span)
        origins.append(float(start))
    return replace(stored, cache=cache, origins=tuple(origins))
