"""Retrieval over the corpus of a study: BM25, dense, both fused by reciprocal ranks, reranking;
gold passages.
"""

import hashlib
import io
import json
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath

import numpy as np

from ragauge.errors import UserError, meant
from ragauge.io.files import write_file
from ragauge.io.jsonl import JsonObject
from ragauge.io.progress import bar
from ragauge.methods.rankers.bm25 import CorpusBM25
from ragauge.metrics.base import comparable
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion

DEPTH = 100  # ranks of a ranking that are fused and reported; more where questions need more
FUSION = 60  # k of Cormack et al., SIGIR 2009: the score of a passage is the sum of 1 / (k + rank)
# first passages of a ranking that a cross-encoder reads; more where questions need more
RERANKED = 50
# passages whose embeddings are a file: what is encoded when a study is stopped stays encoded
SHARD = 10_000
MAX_NAMED = 3  # questions that a warning names
BLOCK = 256  # passages encoded between two updates of the progress bar

Ranking = list[list[int]]  # (question, rank) passages, the best first

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retrieval:
    kind: str = "bm25"  # one of RETRIEVALS
    encoder: str = "minilm"  # of dense retrieval: a name in the catalog, or a source
    reranker: str | None = None  # a cross-encoder that reads the first passages again: a source
    file: str | None = None  # of rankings of another system, which are compared with `kind`

    @property
    def chosen(self) -> str:
        """The name of the ranking that questions get their passages from."""
        return "reranked" if self.reranker else "retrieved" if self.file else self.kind


class Searcher:
    """A retrieval over the passages of one corpus, whose index is made once."""

    def __init__(self, retrieval: Retrieval, passages: Sequence[Passage], folder: Path) -> None:
        """Embeddings are written to `folder`, where another study of the same passages uses them
        again.
        """
        self.retrieval = retrieval
        self.folder = folder
        # of the last rankings, all questions together; of dense ones with embeddings not there yet
        self.seconds: dict[str, float] = {}
        self.texts = [f"{passage.document} {passage.text}" for passage in passages]

    @cached_property
    def _bm25(self) -> CorpusBM25:
        return CorpusBM25(self.texts)

    def rankings(
        self, queries: Sequence[str], count: int, retrieved: Ranking | None = None
    ) -> dict[str, Ranking]:
        """Compute every ranking on the way to the chosen one, which is the last. Each question
        needs `count` passages; `retrieved`: their ranking by another system.

        Raises:
            UserError: the encoder or the cross-encoder cannot be had.
        """
        retrieval = self.retrieval
        texts = self.texts
        depth = min(max(count, DEPTH), len(texts))
        found = {}
        matched: Ranking = []
        if retrieval.kind != "dense":
            with self._clock("bm25"):
                found["bm25"], matched = self._lexical(queries, depth)
        if retrieval.kind != "bm25":
            with self._clock("dense"):
                found["dense"] = dense(queries, texts, depth, retrieval.encoder, self.folder)
        if retrieval.kind == "fused":
            found["fused"] = fused([matched, found["dense"]], depth)
        if retrieved is not None:
            found["retrieved"] = retrieved
        if retrieval.reranker:
            *_, first = found.values()
            with self._clock("reranked"):
                found["reranked"] = reranked(
                    queries, texts, first, max(count, RERANKED), retrieval.reranker
                )
        return found

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    def _lexical(self, queries: Sequence[str], depth: int) -> tuple[Ranking, Ranking]:
        """Rank all passages by BM25; return the ranking, and its part that has a word of the
        question. Passages without one stay in the order of the corpus, which says nothing: it is
        not fused, and a question that has no others is named.
        """
        ranking = Ranking()
        matched = Ranking()
        for scores in self._bm25.scores(queries):
            ranking.append(_best(scores, depth))
            matched.append([passage for passage in ranking[-1] if scores[passage] > 0])
        unmatched = [query for query, order in zip(queries, matched, strict=True) if not order]
        if unmatched:
            counts = f"{len(unmatched)} of {len(queries)} questions share no word with any passage"
            names = "; ".join(f"{query:.80}" for query in unmatched[:MAX_NAMED])
            logger.warning("BM25: %s, so passages stay in their order: %s", counts, names)
        return ranking, matched


def dense(
    queries: Sequence[str], texts: Sequence[str], depth: int, encoder: str, folder: Path
) -> Ranking:
    """Rank all passages by the similarity of their embeddings with the question's."""
    from ragauge.methods.rankers.dense import load_encoder

    vectors = load_encoder(encoder).embed(queries, query=True)
    scores = []
    numbers = []
    for start, shard in _embeddings(texts, encoder, folder):
        products = vectors @ shard.T
        best = np.argsort(-products, axis=1, kind="stable")[:, :depth]
        scores.append(np.take_along_axis(products, best, 1))
        numbers.append(best + start)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(np.concatenate(numbers, axis=1), order, 1).tolist()


def _embeddings(
    texts: Sequence[str], encoder: str, folder: Path
) -> Iterator[tuple[int, np.ndarray]]:
    """The first passage of each shard and the shard's embeddings (passage, dim); those in the
    folder are not made.
    """
    from ragauge.methods.base.served import fingerprint
    from ragauge.methods.rankers.dense import VECTORS, load_encoder

    weights = fingerprint(encoder)
    with bar("encoding passages", "passage", len(texts), delay=2) as progress:
        for start in range(0, len(texts), SHARD):
            shard = texts[start : start + SHARD]
            digest = hashlib.sha256(
                json.dumps([encoder, weights, VECTORS, *shard]).encode()
            ).hexdigest()[:16]
            path = folder / f"{digest}.npy"
            if not path.is_file():
                parts = []
                for at in range(0, len(shard), BLOCK):
                    parts.append(load_encoder(encoder).embed(shard[at : at + BLOCK]))
                    progress.update(len(parts[-1]))
                content = io.BytesIO()
                np.save(content, np.concatenate(parts))
                write_file(path, content.getvalue())
            yield start, np.load(path, mmap_mode="r", allow_pickle=False)


def fused(parts: Sequence[Ranking], depth: int) -> Ranking:
    """Fuse rankings of the same questions by the sum of reciprocal ranks; ties go to the earlier
    passage.
    """
    ranking = []
    for orders in zip(*parts, strict=True):
        scores = defaultdict[int, float](float)
        for order in orders:
            for rank, passage in enumerate(order, start=1):
                scores[passage] += 1 / (FUSION + rank)
        best = sorted(scores, key=lambda passage: (-scores[passage], passage))
        ranking.append(best[:depth])
    return ranking


def reranked(
    queries: Sequence[str], texts: Sequence[str], ranking: Ranking, count: int, model: str
) -> Ranking:
    """Have a cross-encoder reorder the first `count` passages of each ranking."""
    from ragauge.methods.rankers import cross_encoder

    reordered = []
    pairs = zip(queries, ranking, strict=True)
    for query, order in bar("reranking", "question", len(queries), iterable=pairs, delay=2):
        scores = cross_encoder.rank(query, [texts[i] for i in order[:count]], model=model)
        reordered.append([order[i] for i in _best(scores, count)] + order[count:])
    return reordered


def _best(scores: np.ndarray, depth: int) -> list[int]:
    """Return the numbers of the largest scores, in their order; ties go to the earlier one."""
    return np.argsort(-scores, kind="stable")[:depth].tolist()


def check_gold(golds: Iterable[str], names: Collection[str]) -> None:
    """Raise UserError if gold documents are not among the names of documents: all of them."""
    unknown = []
    for gold in dict.fromkeys(golds):
        if len(_named(gold, names)) != 1:
            near = _nearest(gold, list(names))
            unknown.append(f"{gold!r}{f', did you mean {near!r}?' if near else ''}")
    if unknown:
        raise UserError(f"--questions: gold is not a document of the corpus: {'; '.join(unknown)}")


def _named(gold: str, names: Collection[str]) -> list[str]:
    """The names that a gold document's may mean: this one, else those of files in any folder."""
    if gold in names:
        return [gold]
    return [name for name in names if PureWindowsPath(name).name == gold]


def gold_passages(
    questions: Sequence[StudyQuestion], passages: Sequence[Passage], originals: Mapping[str, str]
) -> Iterator[list[int]]:
    """Find the passages that hold an answer of each question, in its gold document where that is
    known.

    Where the gold document holds no answer word for word, all of its passages are gold. `originals`
    has the title of every document -> of the one that it nearly repeats, or its own: if one is
    gold, all are.

    Raises:
        UserError: as `check_gold`.
    """
    check_gold((question.gold for question in questions if question.gold), originals)
    texts = [comparable(passage.text) for passage in passages]
    by_document = defaultdict(list)
    for number, passage in enumerate(passages):
        for title in {originals[document] for document in (passage.document, *passage.stands_for)}:
            by_document[title].append(number)
    for question in questions:
        names = _named(question.gold, originals) if question.gold else []
        within = [number for name in names for number in by_document[originals[name]]]
        answers = [answer for answer in map(comparable, question.answers) if answer.strip()]
        # all, too, where every passage of the gold document was dropped
        searched = within or range(len(texts))
        yield [i for i in searched if any(answer in texts[i] for answer in answers)] or within


def _nearest(title: str, titles: Sequence[str]) -> str | None:
    """Find the title that another one may mean: of the same file in another folder or format, or
    spelt alike.
    """
    stem = PureWindowsPath(title).stem.casefold()
    same = [other for other in titles if PureWindowsPath(other).stem.casefold() == stem]
    return meant(title, same or titles) or next(iter(same), None)


def report(
    retrieval: Retrieval,
    rankings: Mapping[str, Ranking],
    questions: Sequence[StudyQuestion],
    gold: Sequence[Sequence[int]],
    count: int,
    seconds: Mapping[str, float],
) -> JsonObject:
    """Report the ranks, from 1, of each question's gold passages in every ranking: the item
    `study_retrieval` reads it. `gold`: (question, any) passages of the whole corpus that answer the
    question; a question gets `count` passages; `seconds`: of `Searcher`.
    """
    rows = []
    for i, (question, answering) in enumerate(zip(questions, gold, strict=True)):
        ranks = {
            name: [rank for rank, passage in enumerate(ranking[i], start=1) if passage in answering]
            for name, ranking in rankings.items()
        }
        row = {
            "id": question.key,
            "known_by": "answer" if question.gold is None else "document",
            "gold": len(answering),
            "ranks": ranks,
        }
        rows.append(row)
    how = {
        **asdict(retrieval),
        "chosen": retrieval.chosen,
        "fusion_k": FUSION,
        "seconds": seconds,
        "top": count,
        "depth": min(max(map(len, ranking), default=0) for ranking in rankings.values()),
    }
    return {"retrieval": how, "questions": rows}
