"""When requests are searched: those that wait together in one call, long ones in a lane of their own.

A lane is a queue and the threads that take from it. The short lane waits `window_s` for more requests, joins those that
it has, and searches them in one call; the long lane takes one request at a time. A request whose caller is gone leaves
the queue at once, and a search that runs for nobody stops at its next check.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ragauge.retrieval.indexes._base import CancelledSearchError, Stop
from ragauge.retrieval.retriever import Neighbours, Query, Searcher

TOGETHER = 19  # queries in one call: from 20 on faiss compares centroids by BLAS, whose last bits differ


@runtime_checkable
class JointSearcher(Protocol):
    """A searcher that searches several requests in one call, with the answers that each would get by itself."""

    def search_together(self, requests: Sequence[Sequence[Query]], stop: Stop) -> list[list[Neighbours]]:
        """The neighbours of each request's queries. Raises CancelledSearchError once `stop` says so."""
        ...

    def work(self, queries: Sequence[Query]) -> int:
        """What a request costs: the nprobe of its searches, summed over its queries."""
        ...


def work_of(searcher: Searcher, queries: Sequence[Query]) -> int:
    """The nprobe of a request's searches, summed over its queries; 1 for a query of unknown nprobe."""
    if isinstance(searcher, JointSearcher):
        return searcher.work(queries)
    return sum(query.nprobe or 1 for query in queries)


@dataclass(eq=False)
class LaneJob:
    """One request on its way through a lane."""

    searcher: Searcher
    queries: Sequence[Query]
    arrived: float = field(default_factory=time.perf_counter)
    began: float | None = None
    joined: int = 1  # requests in the call that searched it
    gone: bool = False  # nobody waits for it any longer
    answer: Future[list[Neighbours]] = field(default_factory=Future)

    @property
    def queue_s(self) -> float:
        """Seconds between arrival and search."""
        return (self.began or time.perf_counter()) - self.arrived


class Lane:
    """A queue and the threads that search what is in it."""

    def __init__(self, name: str, workers: int, window_s: float = 0.0, together: int = 1) -> None:
        """
        Args:
            workers: calls at the same time.
            window_s: how long the first request of a call waits for others; 0: only those that wait already join.
            together: the most queries of a call of several requests.
        """
        self._window_s, self._together = window_s, together
        self._waiting: deque[LaneJob] = deque()
        self._running: dict[int, float] = {}  # since when, by thread
        self._changed = threading.Condition()
        self._closed = False
        for number in range(workers):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, job: LaneJob) -> None:
        """Queue a request."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def drop(self, job: LaneJob) -> None:
        """Nobody waits for a request any longer: it leaves the queue, or its search stops at its next check."""
        job.gone = True
        self.withdraw(job)

    def withdraw(self, job: LaneJob) -> None:
        """A request leaves the queue; no effect on one that is being searched."""
        if job.answer.cancel():
            with self._changed:
                if job in self._waiting:
                    self._waiting.remove(job)

    def close(self) -> None:
        """End the threads, each after its search."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Requests that are not being searched yet."""
        return len(self._waiting)

    def longest_s(self) -> float:
        """Seconds that the oldest running search has taken so far; 0 if none runs."""
        began = list(self._running.values())
        return time.perf_counter() - min(began) if began else 0.0

    def _work(self) -> None:
        while jobs := self._next():
            me = threading.get_ident()
            self._running[me] = time.perf_counter()
            try:
                search(jobs)
            finally:
                del self._running[me]

    def _next(self) -> list[LaneJob]:
        """The requests of the next call; none once the lane is closed."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed and not self._waiting:
                    return []
                self._wait_for_others()
                if taken := self._take():
                    return taken

    def _wait_for_others(self) -> None:
        end = self._waiting[0].arrived + self._window_s
        while (left := end - time.perf_counter()) > 0 and self._room() and not self._closed:
            self._changed.wait(left)

    def _room(self) -> bool:
        return sum(len(job.queries) for job in self._waiting) < self._together

    def _take(self) -> list[LaneJob]:
        """The first request and those after it that fit into one call with it; abandoned ones are dropped."""
        taken: list[LaneJob] = []
        queries = 0
        while self._waiting:
            job = self._waiting[0]
            if taken and (queries + len(job.queries) > self._together or job.searcher is not taken[0].searcher):
                break
            self._waiting.popleft()
            if job.answer.set_running_or_notify_cancel():
                taken.append(job)
                queries += len(job.queries)
        return taken


def search(jobs: Sequence[LaneJob]) -> None:
    """Search requests together and settle each; if the call fails, each by itself: none fails another's."""
    began = time.perf_counter()
    for job in jobs:
        job.began, job.joined = began, len(jobs)
    try:
        found = _found(jobs)
    except Exception as error:
        if len(jobs) == 1 or isinstance(error, CancelledSearchError):
            for job in jobs:
                job.answer.set_exception(error)
        else:
            for job in jobs:
                search([job])
        return
    for job, neighbours in zip(jobs, found, strict=True):
        job.answer.set_result(neighbours)


def _found(jobs: Sequence[LaneJob]) -> list[list[Neighbours]]:
    searcher = jobs[0].searcher
    if isinstance(searcher, JointSearcher):
        return searcher.search_together([job.queries for job in jobs], lambda: all(job.gone for job in jobs))
    return [searcher.search(job.queries) for job in jobs]
