"""Where a window's neighbours come from: nowhere, a blocking retrieval, a prefetched one, or random
draws.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ragauge.cost.overlap import AHEAD, PREFETCH, RETRIEVAL, WAIT
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import Neighbours, Query, Searcher
from ragauge.pipelines.windows import CHUNK, Windows

if TYPE_CHECKING:
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.reader import Prepare, Prepared, Tokens

Note = Callable[[Call], None]


@dataclass
class NeighbourSource(ABC):
    """Neighbours for the windows of one sequence."""

    results: list[Neighbours] = field(default_factory=list, init=False)  # of all searches, in order

    @abstractmethod
    def neighbours(
        self, window: int, ids: Tokens, more: bool
    ) -> Sequence[Tokens] | Prepared | None:
        """Return the neighbours of the next window, which may be `Prepared`; None: those of the
        window before stay. `ids`: all tokens known at the window's start; `more`: whether a window
        follows, for which a query may be sent early.

        Raises:
            UserError: the retriever failed; the sequence must not go on without its neighbours.
        """

    def close(self) -> None:  # noqa: B027 (most have nothing to cancel)
        """Cancel a pending retrieval."""


@dataclass(frozen=True)
class RetrievalOptions:
    searcher: Searcher
    k: int = 2
    nprobe: int | None = None  # of searches without a budget; None: the index's own
    # in place of nprobe, of prefetched queries: seconds of a search while the window after so many
    # tokens is decoded
    budget: Callable[[int], float] | None = None
    excluded_documents: frozenset[int] = frozenset()  # numbers
    excluded_chunks: frozenset[int] = frozenset()  # numbers
    spare: int = 8  # neighbours requested beyond k where some are excluded

    def query(self, ids: Tokens, continuation: int, budget_s: float | None = None) -> Query:
        nprobe = self.nprobe if budget_s is None else None
        k = self.k + (self.spare if self.excluded_documents or self.excluded_chunks else 0)
        return Query(
            tokens=list(ids), k=k, nprobe=nprobe, budget_s=budget_s, continuation=continuation
        )

    def search(
        self, ids: Tokens, continuation: int, budget_s: float | None = None
    ) -> tuple[Neighbours, float]:
        """(neighbours, seconds of the whole call)."""
        query = self.query(ids, continuation, budget_s)
        started = time.perf_counter()
        [neighbours] = self.searcher.search([query])
        return neighbours, time.perf_counter() - started

    def texts(self, neighbours: Neighbours, part: slice) -> list[list[int]]:
        """This part of the tokens of the k nearest neighbours that are not excluded, where a
        neighbour has any.
        """
        allowed = [
            neighbour
            for neighbour in neighbours.rows
            if neighbour.document not in self.excluded_documents
            and neighbour.id not in self.excluded_chunks
        ]
        # a chunk and the text after it in its document
        texts = [(one.tokens + one.continuation)[part] for one in allowed[: self.k]]
        return [tokens for tokens in texts if tokens]


class NoNeighbours(NeighbourSource):
    def neighbours(self, window: int, ids: Tokens, more: bool) -> None:
        """None, in every window."""


@dataclass
class BlockingRetrieval(NeighbourSource):
    """Windows query with their own tokens and wait (RETRO; RETRO+ where the interval is below 64)."""

    options: RetrievalOptions
    windows: Windows
    note: Note
    # where not, the neighbours of the window before stay
    reads_at: Callable[[int], bool] = lambda window: True
    encodes_anew: bool = False  # whether those that stay are encoded again, for this window

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens] | None:
        if self.reads_at(window):
            windows = self.windows
            query = ids[windows.query(window)]
            neighbours, seconds = self.options.search(query, windows.continuation)
            self.note(_call(RETRIEVAL, seconds))
            self.results.append(neighbours)
        elif not self.encodes_anew:
            return None
        return self.options.texts(self.results[-1], self.windows.part(window))


@dataclass
class PrefetchedRetrieval(NeighbourSource):
    """PipeRAG: another thread queries for the next window while one is decoded; the first retrieval
    blocks.
    """

    options: RetrievalOptions
    windows: Windows
    note: Note
    # by it the searching thread reads the neighbours too; None: whoever reads the text
    prepare: Prepare | None = None

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "prefetch")
        self._pending: Future[tuple[Neighbours, float, Sequence[Tokens] | Prepared]] | None = None

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens] | Prepared:
        if self._pending is None:
            results, seconds, neighbours = self._fetch(window, ids, None, None)
            self.note(_call(RETRIEVAL, seconds))
        else:
            started = time.perf_counter()
            results, seconds, neighbours = self._pending.result()
            waited = time.perf_counter() - started
            self.note(_call(PREFETCH, seconds))
            for call in getattr(neighbours, "calls", ()):  # those that read prepared neighbours
                self.note(replace(call, stage=AHEAD))
            self.note(_call(WAIT, waited))
        self.results.append(results)
        self._pending = None
        if more:
            budget = self.options.budget
            budget_s = budget(len(ids)) if budget else None
            self._pending = self._thread.submit(
                self._fetch, window + 1, ids, budget_s, self.prepare
            )
        return neighbours

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _fetch(
        self, window: int, ids: Tokens, budget_s: float | None, prepare: Prepare | None
    ) -> tuple[Neighbours, float, Sequence[Tokens] | Prepared]:
        """(result of a window's query, seconds of the search, its neighbours)."""
        windows = self.windows
        query = ids[windows.query(window)]
        neighbours, seconds = self.options.search(query, windows.continuation, budget_s)
        texts = self.options.texts(neighbours, windows.part(window))
        return neighbours, seconds, prepare(texts, windows.first(window)) if prepare else texts


@dataclass
class RandomNeighbours(NeighbourSource):
    """The control: as many neighbours of the same database, drawn at random, each with its
    continuation.
    """

    passages: Database
    rng: np.random.Generator
    k: int = 2
    excluded_documents: frozenset[int] = frozenset()  # numbers

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens]:
        return [self._draw() for _ in range(self.k)]

    def _draw(self) -> list[int]:
        for _ in range(1000):
            document, tokens = self.passages.passage(int(self.rng.integers(len(self.passages))), 1)
            if document not in self.excluded_documents:
                return tokens
        raise UserError(
            "random neighbours: nearly all chunks of the database belong to excluded documents"
        )


def _call(stage: str, seconds: float) -> Call:
    """Return a retrieval in the trace: the query's tokens; no multiply-accumulate of the decoder."""
    return Call(stage, (CHUNK,), (0,), macs=0, seconds=seconds)
