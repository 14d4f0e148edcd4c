"""Retrieval over the corpus of a study: BM25, dense, both fused by reciprocal ranks, and reranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.io.progress import bar
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion

if TYPE_CHECKING:
    from ragauge.study.indexed import Place

DEPTH = 100  # ranks that are kept of a ranking, and that are fused; more where more passages are asked for
FUSION = 60  # k of Cormack et al., SIGIR 2009: the score of a passage is the sum of 1 / (k + rank)
RERANKED = 50  # first passages of a ranking that a cross-encoder reads; more where more passages are asked for
EXACT = 50_000  # passages up to which dense search compares all vectors; beyond, the index of a chunk database does
BLOCK = 256  # passages encoded between two states of the bar

Ranking = list[list[int]]  # (question, rank) passages, the best first


@dataclass(frozen=True)
class Retrieval:
    """How passages are found."""

    kind: str = "bm25"  # one of RETRIEVALS
    encoder: str = "minilm"  # of dense retrieval: a name in the catalog, or a source
    reranker: str | None = None  # a cross-encoder that reads the first passages again: a source

    @property
    def chosen(self) -> str:
        """The name of the ranking that questions get their passages from."""
        return "reranked" if self.reranker else self.kind


def rankings(
    retrieval: Retrieval, questions: Sequence[StudyQuestion], passages: Sequence[Passage], count: int, place: Place
) -> dict[str, Ranking]:
    """Every ranking that was made on the way to the chosen one, which is the last.

    Args:
        count: passages that each question needs.
        place: where the database of more than `EXACT` passages is kept.

    Raises:
        UserError: the encoder or the cross-encoder cannot be had.
    """
    depth = min(max(count, DEPTH), len(passages))
    asked = [question.question for question in questions]
    texts = [f"{passage.document} {passage.text}" for passage in passages]
    made: dict[str, Ranking] = {}
    if retrieval.kind in ("bm25", "fused"):
        made["bm25"] = bm25(asked, texts, depth)
    if retrieval.kind in ("dense", "fused"):
        made["dense"] = dense(asked, texts, depth, retrieval.encoder, place)
    if retrieval.kind == "fused":
        made["fused"] = fused(list(made.values()), depth)
    if retrieval.reranker:
        made["reranked"] = reranked(asked, texts, made[retrieval.kind], max(count, RERANKED), retrieval.reranker)
    return made


class Bm25:
    """BM25 over a whole corpus; ties go to the earlier passage."""

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        self._index = bm25s.BM25(k1=1.5, b=0.75)
        self._index.index(_words(texts), show_progress=False)

    def best(self, questions: Sequence[str], depth: int) -> Ranking:
        """The passages nearest to each question."""
        return [_best(self._index.get_scores(words), depth) for words in _words(questions)]


def bm25(questions: Sequence[str], texts: Sequence[str], depth: int) -> Ranking:
    """The passages nearest by BM25 over the whole corpus."""
    return Bm25(texts).best(questions, depth)


def dense(questions: Sequence[str], texts: Sequence[str], depth: int, encoder: str, place: Place) -> Ranking:
    """The passages whose embeddings have the largest dot product with the question's; of many, by an index."""
    if len(texts) > EXACT:
        from ragauge.study import indexed

        return indexed.search(place, questions, texts, depth, encoder)
    from ragauge.rankers.dense import load_encoder

    model = load_encoder(encoder)
    vectors = np.empty((len(texts), model.dim), dtype=np.float32)
    with bar("encoding passages", "passage", len(texts), delay=2) as shown:
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            vectors[start : start + len(block)] = model.encode(block)
            shown.update(len(block))
    return [_best(vectors @ query, depth) for query in model.encode(questions, query=True)]


def fused(parts: Sequence[Ranking], depth: int) -> Ranking:
    """Rankings of the same questions as one, by the sum of reciprocal ranks; ties go to the earlier passage."""
    return [_fused([part[i] for part in parts])[:depth] for i in range(len(parts[0]))]


def reranked(questions: Sequence[str], texts: Sequence[str], ranking: Ranking, count: int, model: str) -> Ranking:
    """Rankings whose first `count` passages a cross-encoder has put in another order."""
    from ragauge.rankers import cross_encoder

    made = []
    pairs = zip(questions, ranking, strict=True)
    for question, order in bar("reranking", "question", len(questions), iterable=pairs, delay=2):
        first = order[:count]
        scores = cross_encoder.rank(question, [texts[i] for i in first], model=model)
        made.append([first[i] for i in _best(scores, count)] + order[count:])
    return made


def _fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, start=1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (FUSION + rank)
    return sorted(scores, key=lambda passage: (-scores[passage], passage))


def _best(scores: np.ndarray, depth: int) -> list[int]:
    """The places of the largest scores, in their order."""
    found: list[int] = np.argsort(-scores, kind="stable")[:depth].tolist()
    return found


def _words(texts: Sequence[str]) -> list[list[str]]:
    import bm25s

    words: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words


def report(
    retrieval: Retrieval,
    rankings: Mapping[str, Ranking],
    questions: Sequence[StudyQuestion],
    gold: Sequence[Sequence[int]],
    count: int,
) -> dict[str, Any]:
    """What each ranking found of what each question needs: what the item `study_retrieval` reads.

    Args:
        gold: (question, any) passages of the whole corpus that answer the question.
        count: passages that a question gets.
    """
    found = [
        {
            "id": question.key,
            "known_by": "answer" if question.gold is None else "document",
            "gold": len(answering),
            "ranks": {name: _ranks(ranking[i], set(answering)) for name, ranking in rankings.items()},
        }
        for i, (question, answering) in enumerate(zip(questions, gold, strict=True))
    ]
    depth = max((len(ranking) for ranking in next(iter(rankings.values()))), default=0)
    models = {"encoder": retrieval.encoder, "reranker": retrieval.reranker}
    how = {"chosen": retrieval.chosen, **models, "fusion_k": FUSION, "top": count, "depth": depth}
    return {"retrieval": how, "questions": found}


def _ranks(ranking: Sequence[int], gold: set[int]) -> list[int]:
    """The ranks, from 1, of the gold passages that were found."""
    return [rank for rank, passage in enumerate(ranking, start=1) if passage in gold]
