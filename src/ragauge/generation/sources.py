"""Where a window's neighbours come from: nowhere, a fresh query, a stale query sent ahead of time, or chance.

A source is asked once per window, in order, as the sequence grows; it returns the neighbours' tokens, or None where
those of the window before stay. The trace records its cost: `retrieval` blocks decoding, `prefetch` ran concurrently
with the window before, `neighbours_ahead` is reading neighbours there as well, and `wait` is the time that decoding
then waited for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ragauge.cost.overlap import AHEAD, PREFETCH, RETRIEVAL, WAIT
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.generation.windows import CHUNK, Windows
from ragauge.retrieval.retriever import Neighbours, Query, Searcher

if TYPE_CHECKING:
    from ragauge.generation.reader import Prepare, Prepared, Tokens

Note = Callable[[Call], None]
Budget = Callable[[int], float]
"""Seconds that a retrieval may take while the window after `length` tokens is decoded."""


class NeighbourSource(Protocol):
    """Neighbours for the windows of one sequence."""

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens] | Prepared | None:
        """The neighbours of a window, given all tokens known at its start; None: those of the window before stay.

        They are prepared where the source has had them read.

        Args:
            more: whether a window follows, for which a query may be sent ahead.

        Raises:
            UserError: the retriever failed; the sequence must not go on without its neighbours.
        """
        ...

    def close(self) -> None:
        """Forget what is under way."""
        ...


@dataclass(frozen=True)
class Ask:
    """How the database is asked."""

    searcher: Searcher
    k: int = 2
    nprobe: int | None = None  # None: the index's own
    budget: Budget | None = None  # of prefetched queries, in place of nprobe
    as_text: Callable[[Tokens], str] | None = None  # detokenises where the query is sent as text
    characters: int | None = None  # of the text that are kept, from its end; None: all
    exclude: frozenset[int] = frozenset()  # numbers of documents whose chunks are passed over
    passed_over: frozenset[int] = frozenset()  # numbers of chunks
    spare: int = 8  # neighbours asked for beyond k where chunks are passed over

    def query(self, ids: Tokens, continuation: int, budget_s: float | None = None) -> Query:
        """The query for a window's tokens."""
        nprobe = self.nprobe if budget_s is None else None
        k = self.k + (self.spare if self.exclude or self.passed_over else 0)
        query = Query(tokens=list(ids), k=k, nprobe=nprobe, budget_s=budget_s, continuation=continuation)
        if self.as_text is None:
            return query
        text = self.as_text(ids)
        return replace(query, tokens=None, text=text if self.characters is None else text[-self.characters :])

    def search(self, query: Query) -> tuple[Neighbours, float]:
        """(neighbours, seconds of the whole call)."""
        started = time.perf_counter()
        [found] = self.searcher.search([query])
        return found, time.perf_counter() - started

    def texts(self, found: Neighbours, kept: slice) -> list[list[int]]:
        """The kept tokens of the k nearest neighbours that are not passed over; a neighbour without any is left out."""
        allowed = [
            place
            for place, (chunk, document) in enumerate(zip(found.ids, found.documents, strict=True))
            if chunk >= 0 and int(document) not in self.exclude and int(chunk) not in self.passed_over
        ]
        fetched = [fetched_tokens(found, place)[kept] for place in allowed[: self.k]]
        return [tokens for tokens in fetched if tokens]


def fetched_tokens(found: Neighbours, place: int) -> list[int]:
    """The tokens of one neighbour: its chunk and what follows it in its document."""
    chunk = found.tokens[place, : found.lengths[place]]
    after = found.continuations[place, : found.continuation_lengths[place]]
    return [int(token) for token in (*chunk, *after)]


@dataclass
class NoNeighbours:
    """The decoder alone."""

    def neighbours(self, window: int, ids: Tokens, more: bool) -> None:
        """See `Source.neighbours`."""

    def close(self) -> None:
        """See `Source.close`."""


@dataclass
class Fresh:
    """Windows ask with their own tokens and wait (RETRO; RETRO+ where the interval is below 64)."""

    ask: Ask
    windows: Windows
    note: Note
    asks_at: Callable[[int], bool] = lambda window: True  # where not, the neighbours of the window before stay
    asked: list[Neighbours] = field(default_factory=list)  # what was found, in order

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens] | None:
        """See `Source.neighbours`."""
        if not self.asks_at(window):
            return None
        found, seconds = self.ask.search(self.ask.query(ids[self.windows.query(window)], self.windows.continuation))
        self.note(_call(RETRIEVAL, seconds))
        self.asked.append(found)
        return self.ask.texts(found, self.windows.kept(window))

    def close(self) -> None:
        """See `Source.close`."""


@dataclass(frozen=True)
class Fetched:
    """What a query of one window brought."""

    found: Neighbours
    seconds: float  # of the search
    neighbours: Sequence[Tokens] | Prepared


class Prefetched:
    """PipeRAG: while a window is decoded, another thread asks for the next one, with this window's tokens.

    The first retrieval is waited for. At each window's start the outstanding reply is awaited and the next query sent.
    The search runs beside decoding: a service's client waits on its socket, faiss and torch leave Python's lock.
    """

    def __init__(self, ask: Ask, windows: Windows, note: Note, prepare: Prepare | None = None) -> None:
        """
        Args:
            prepare: has the thread that asked read the neighbours as well; default: whoever reads the text does.
        """
        if not windows.stale:
            raise ValueError("a query can be sent ahead only where it is stale")
        self.ask, self.windows, self.note, self.prepare = ask, windows, note, prepare
        self.asked: list[Neighbours] = []  # what was found, in order
        self._thread = ThreadPoolExecutor(1, "prefetch")
        self._outstanding: Future[Fetched] | None = None

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens] | Prepared:
        """See `Source.neighbours`."""
        fetched = self._await() if self._outstanding else self._first(window, ids)
        self.asked.append(fetched.found)
        if more:
            budget_s = self.ask.budget(len(ids)) if self.ask.budget else None
            query = self.ask.query(ids[self.windows.query(window + 1)], self.windows.continuation, budget_s)
            self._outstanding = self._thread.submit(self._fetch, window + 1, query, self.prepare)
        return fetched.neighbours

    def close(self) -> None:
        """See `Source.close`."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, window: int, query: Query, prepare: Prepare | None) -> Fetched:
        found, seconds = self.ask.search(query)
        texts = self.ask.texts(found, self.windows.kept(window))
        return Fetched(found, seconds, prepare(texts, self.windows.first(window)) if prepare else texts)

    def _first(self, window: int, ids: Tokens) -> Fetched:
        query = self.ask.query(ids[self.windows.query(window)], self.windows.continuation)
        fetched = self._fetch(window, query, None)
        self.note(_call(RETRIEVAL, fetched.seconds))
        return fetched

    def _await(self) -> Fetched:
        from ragauge.generation.reader import Prepared

        assert self._outstanding is not None
        started = time.perf_counter()
        fetched = self._outstanding.result()
        waited = time.perf_counter() - started
        self._outstanding = None
        self.note(_call(PREFETCH, fetched.seconds))
        for call in fetched.neighbours.calls if isinstance(fetched.neighbours, Prepared) else ():
            self.note(replace(call, stage=AHEAD))
        self.note(_call(WAIT, waited))
        return fetched


class Passages(Protocol):
    """A database whose chunks are read by number."""

    def __len__(self) -> int:
        """Chunks."""
        ...

    def passage(self, chunk: int, continuation: int) -> tuple[int, list[int]]:
        """(number of its document, tokens of a chunk and of as many that follow it in the document)."""
        ...


@dataclass
class Chance:
    """The control: as many neighbours of the same database, drawn at random, each with its continuation."""

    passages: Passages
    windows: Windows
    rng: np.random.Generator
    k: int = 2
    exclude: frozenset[int] = frozenset()  # numbers of documents whose chunks are passed over

    def neighbours(self, window: int, ids: Tokens, more: bool) -> Sequence[Tokens]:
        """See `Source.neighbours`."""
        return [self._draw() for _ in range(self.k)]

    def close(self) -> None:
        """See `Source.close`."""

    def _draw(self) -> list[int]:
        for _ in range(1000):
            document, tokens = self.passages.passage(int(self.rng.integers(len(self.passages))), 1)
            if document not in self.exclude:
                return tokens
        raise UserError("random neighbours: nearly all chunks of the database belong to excluded documents")


def _call(stage: str, seconds: float) -> Call:
    """A retrieval in the trace: the query's tokens; no multiply-accumulate of the decoder."""
    return Call(stage, (CHUNK,), (0,), macs=0, seconds=seconds)


def sequence_rng(seed: int, key: str) -> Any:
    """A generator of one sequence's own, whatever was drawn for others."""
    import hashlib

    digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
