"""The retriever: queries in, neighbours with their continuations out, every stage timed
(docs/retrieval.md).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from ragauge.errors import UserError
from ragauge.methods.rankers.base import TextEncoder
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.database.embed import EncoderChoice
from ragauge.pipelines.indexes.base.recipe import SearchResult
from ragauge.pipelines.retrieval.index import Index

STAGES = ("encode", "search", "lookup")  # keys of Neighbours.seconds; a service adds its own
CALIBRATION_TRIALS = 5


@dataclass(frozen=True)
class Query:
    """One query: tokens of the database's tokenizer, or text, with at most one of `nprobe` and
    `budget_s`.
    """

    # detokenised by the database's tokenizer and encoded as chunks are, with the passages' prompt
    tokens: Sequence[int] | None = None
    text: str | None = None  # encoded with the encoder's prompt of queries
    k: int = 2  # neighbours
    nprobe: int | None = None  # of the search: nprobe of IVF, efSearch of HNSW
    # seconds for the whole call: the largest nprobe predicted to fit is taken
    budget_s: float | None = None
    # chunks after each neighbour, of the same document; stale queries need 2 (PipeRAG, 4.1)
    continuation: int = 1

    def __post_init__(self) -> None:
        """Raises UserError on an invalid query."""
        if (self.tokens is None) == (self.text is None):
            raise UserError("query: give tokens or text, one of the two")
        if not (self.tokens if self.text is None else self.text.strip()):
            raise UserError(f"query: the {'tokens are' if self.text is None else 'text is'} empty")
        if self.nprobe is not None and self.budget_s is not None:
            raise UserError("query: give nprobe or budget_s, not both")
        for name, least in (("k", 1), ("continuation", 0), ("nprobe", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"query: {name} must be at least {least}, not {value}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UserError(f"query: budget_s must be positive, not {self.budget_s}")


@dataclass(frozen=True)
class Neighbour:
    """A chunk that a search found."""

    id: int  # in the database; of a filled index the real chunk a vector was drawn around
    distance: float  # squared L2, or inner product
    document: int  # its number in the database
    tokens: list[int]  # a document's last chunk may be short
    continuation: list[int]  # tokens of the next chunks of the same document


@dataclass(frozen=True)
class Neighbours:
    """The answer to one query: at most k neighbours, nearest first."""

    rows: list[Neighbour]
    nprobe: int  # of the search that found them
    seconds: dict[str, float]  # by stage, of the whole call that the query was part of
    missing: tuple[str, ...] = ()  # addresses of the servers of parts that gave no answer

    @property
    def ids(self) -> list[int]:
        """Return the chunks."""
        return [neighbour.id for neighbour in self.rows]


@dataclass(frozen=True)
class About:
    """What is searched. Servers whose answers are merged agree in all but `index` and `vectors`."""

    index: str  # digest
    tokenizer: str  # digest
    encoder: str  # digest
    metric: str  # "l2" or "inner_product"
    vectors: int
    max_nprobe: int  # the largest nprobe of a search; 0 if it has none
    vocabulary: int  # token ids are below it
    chunk_tokens: int


class Searcher(Protocol):
    """What generation searches with: a retriever in this process, or a client of the service."""

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """Return the neighbours of each query, in order.

        Raises:
            UserError: an invalid query.
        """


class Retriever:
    """Retrieval in this process.

    Threads may search at the same time; they encode one after another.
    """

    # seconds of a call by nprobe, which a query with a budget needs (`calibrate`)
    latency: LinearTime | None = None

    def __init__(self, database: Database, index: Index, encoder: TextEncoder) -> None:
        """The encoder is that of the index's vectors, which `open` checks."""
        self.database = database
        self.index = index
        self.encoder = encoder
        self._encoding = threading.Lock()  # tokenizers hold the padding and truncation of a call

    @classmethod
    def open(
        cls,
        folder: Path,
        label: str,
        encoder: EncoderChoice,
        part: tuple[int, int] | None = None,
    ) -> Retriever:
        """Open an index of a database.

        Args:
            folder: of the database.
            label: of the index.
            encoder: of queries; its threads search, too.
            part: (number, of) of the index's parts, for one of several servers; default: all.

        Raises:
            UserError: a file is missing, truncated, changed, or of another database, tokenizer or
                encoder.
        """
        import faiss

        database = Database(folder)
        index = Index(database, label, part)
        if encoder.sha256 != index.encoder_sha256:
            raise UserError(
                f"{index.folder}: its vectors were not made with the encoder {encoder.name!r}"
            )
        if encoder.threads:
            faiss.omp_set_num_threads(encoder.threads)
        return cls(database, index, encoder.load())

    def describe(self) -> About:
        database = self.database
        index = self.index
        return About(
            index.sha256, database.manifest["tokenizer"], index.encoder_sha256, index.recipe.metric,
            len(index), index.recipe.max_nprobe, database.vocabulary, database.chunk_tokens,
        )  # fmt: skip

    def detokenize(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of sequences of tokens."""
        return self.database.tokenizer.batch_decode(sequences)

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """Return the neighbours of each query, in order.

        Raises:
            UserError: on a token, nprobe or budget that cannot be used.
        """
        return self.search_together([queries])[0] if queries else []

    def search_together(self, requests: Sequence[Sequence[Query]]) -> list[list[Neighbours]]:
        """Return the neighbours of several requests' queries, the index searched in one call.

        Each request is encoded by itself: padding to another's length would change the last bits of
        its vectors.

        Raises:
            UserError: as `search`.
        """
        queries = [query for request in requests for query in request]
        nprobes = [self._nprobe(query, len(request)) for request in requests for query in request]
        started = time.perf_counter()
        vectors = []
        for request in requests:
            with self._encoding:
                vectors.append(self._encode(request))
        encoded = time.perf_counter()
        results = self._search(queries, nprobes, np.concatenate(vectors))
        searched = time.perf_counter()
        answers = list(map(self._look_up, queries, nprobes, *zip(*results, strict=True)))
        moments = (started, encoded, searched, time.perf_counter())
        for answer in answers:
            answer.seconds.update(
                zip(STAGES, (end - start for start, end in pairwise(moments)), strict=True)
            )
        remaining = iter(answers)
        return [[next(remaining) for _ in request] for request in requests]

    def calibrate(self, nprobes: Sequence[int]) -> LinearTime:
        """Measure calls of one query, a new one in each trial, and store the line that predicts a
        call's seconds.
        """
        ids = np.linspace(0, len(self.database) - 1, 1 + CALIBRATION_TRIALS, dtype=np.int64)
        texts = [self.database.tokenizer.decode(row) for row in self.database.tokens(ids)]
        points = []
        for trial, text in enumerate(texts):
            for nprobe in nprobes:
                start = time.perf_counter()
                self.search([Query(text=text or "?", nprobe=nprobe)])
                if trial:  # the first warms up
                    points.append((nprobe, time.perf_counter() - start))
        self.latency = fit_line(points)
        return self.latency

    def _nprobe(self, query: Query, queries: int) -> int:
        if query.budget_s is None:
            return query.nprobe or self.index.recipe.default_nprobe
        if self.latency is None:
            raise UserError(
                "query: budget_s requires a retriever whose latency was measured (calibrate)"
            )
        return largest_nprobe(
            query.budget_s / queries, self.latency, range(1, self.index.recipe.max_nprobe + 1)
        )

    def _encode(self, queries: Sequence[Query]) -> np.ndarray:
        """Return vectors (query, dim) float32, each kind of query encoded in one call."""
        vectors = np.empty((len(queries), self.encoder.dim), dtype=np.float32)
        for is_text in (False, True):
            numbers = [i for i, query in enumerate(queries) if (query.text is not None) == is_text]
            if numbers:
                texts = [self._text(queries[i]) for i in numbers]
                vectors[numbers] = self.encoder.encode(texts, query=is_text)
        return vectors

    def _text(self, query: Query) -> str:
        if query.text is not None:
            return query.text
        return self.database.tokenizer.decode(list(query.tokens or ()))

    def _search(
        self, queries: Sequence[Query], nprobes: Sequence[int], vectors: np.ndarray
    ) -> list[SearchResult]:
        """Distances (k,) and ids (k,) of each query."""
        groups: dict[tuple[int, int], list[int]] = {}
        for number, (query, nprobe) in enumerate(zip(queries, nprobes, strict=True)):
            groups.setdefault((query.k, nprobe), []).append(number)
        results: dict[int, SearchResult] = {}
        for (k, nprobe), numbers in groups.items():
            distances, ids = self.index.search(vectors[numbers], k, nprobe)
            results.update(zip(numbers, zip(distances, ids, strict=True), strict=True))
        return [results[number] for number in range(len(queries))]

    def _look_up(
        self, query: Query, nprobe: int, distances: np.ndarray, ids: np.ndarray
    ) -> Neighbours:
        """Return the neighbours with their tokens and continuations, still without seconds."""
        database = self.database
        distances = distances[ids >= 0]
        following = ids = ids[ids >= 0]
        continuations: list[list[int]] = [[] for _ in ids]
        for _ in range(query.continuation):
            following = database.continuations(following)
            for whole, more in zip(continuations, database.tokens(following), strict=True):
                whole += more
        numbers = (values.tolist() for values in (ids, distances, database.documents(ids)))
        rows = zip(*numbers, database.tokens(ids), continuations, strict=True)
        return Neighbours([Neighbour(*row) for row in rows], nprobe, {})


@dataclass(frozen=True)
class LinearTime:
    """Predicted seconds as a line in a count: of a search's nprobe, or of a decoder's tokens."""

    intercept_s: float  # at 0
    slope_s: float  # of each further unit
    error: float = 0.0  # median of |predicted - measured| / measured over the points of the fit

    def __call__(self, count: float) -> float:
        return self.intercept_s + self.slope_s * count


def fit_line(points: Sequence[tuple[float, float]]) -> LinearTime:
    """Least squares over (count, seconds), with neither part below zero: more is never faster, no
    time is negative.
    """
    x, y = np.asarray(points, dtype=np.float64).T
    slope = 0.0
    intercept = float(np.median(y))
    if len(set(x)) > 1:
        slope, intercept = map(float, np.polyfit(x, y, 1))
    if slope < 0:
        slope = 0.0
        intercept = float(y.mean())
    elif intercept < 0:
        slope = float((x @ y) / (x @ x))
        intercept = 0.0
    return LinearTime(
        intercept, slope, float(np.median(np.abs(intercept + slope * x - y) / np.maximum(y, 1e-9)))
    )


def largest_nprobe(budget_s: float, fit: LinearTime, choices: Sequence[int]) -> int:
    """Return the largest of the ascending `choices` whose predicted seconds fit the budget; the
    first if none does.
    """
    return choices[max(0, bisect_right(choices, budget_s, key=fit) - 1)]
