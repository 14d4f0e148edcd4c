"""One bounded queue of searches: requests that wait at the same time are searched in one call of
the index.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import grpc

from ragauge.pipelines.retrieval.retriever import Neighbours, Query, Retriever

# in one call: from 20 on faiss compares centroids by BLAS, whose last bits differ
MAX_JOINED_QUERIES = 19


class RefusedError(Exception):
    """A request that the server refuses: a status code and a message."""


@dataclass(eq=False)
class SearchJob:
    """One request in the queue or in search."""

    queries: Sequence[Query]
    arrived_s: float = field(default_factory=time.perf_counter)
    queue_s: float = 0.0  # seconds between arrival and search
    answer: Future[list[Neighbours]] = field(default_factory=Future)

    def abandon(self) -> None:
        """Let the search not begin; no effect on one that has."""
        self.answer.cancel()


class SearchQueue:
    def __init__(self, searcher: Retriever, capacity: int) -> None:
        """`capacity`: requests in the queue and in search; one more is refused."""
        self._searcher = searcher
        self._capacity = capacity
        self._room = threading.BoundedSemaphore(capacity)
        self.waiting: deque[SearchJob] = deque()
        self._running: list[Future[list[Neighbours]]] = []  # the answers of what is in search
        # One thread searches: OpenMP keeps a team of threads for every thread that ever searched.
        self._thread = ThreadPoolExecutor(1, "search")

    def search(self, job: SearchJob, context: grpc.ServicerContext) -> list[Neighbours]:
        """Search a request, and wait for its answer no longer than its caller does.

        Raises:
            RefusedError: there is no room, or the caller's time ran out.
        """
        if not self._room.acquire(blocking=False):
            limit = f"{self._capacity} requests are under way, which is the limit"
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, limit)
        try:
            self.waiting.append(job)
            self._thread.submit(self._search_next)
            if not context.add_callback(job.abandon):  # the call is over already
                job.abandon()
            return job.answer.result(context.time_remaining())
        except (CancelledError, TimeoutError):
            job.abandon()
            late = "the request's time ran out before it was searched"
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
        finally:
            self._room.release()

    def close(self, grace_s: float) -> bool:
        """End the thread after its search; False if it still searches after `grace_s`."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        return not wait(self._running, max(0.0, grace_s)).not_done

    def _search_next(self) -> None:
        """Search the first request with those that fit into its call; nothing where an earlier call
        has taken all.
        """
        jobs: list[SearchJob] = []
        room = MAX_JOINED_QUERIES
        while self.waiting and (not jobs or len(self.waiting[0].queries) <= room):
            job = self.waiting.popleft()
            if job.answer.set_running_or_notify_cancel():
                job.queue_s = time.perf_counter() - job.arrived_s
                jobs.append(job)
                room -= len(job.queries)
        if jobs:
            self._running = [job.answer for job in jobs]
            self._answer(jobs)

    def _answer(self, jobs: Sequence[SearchJob]) -> None:
        """Search requests in one call and answer each; if the call fails, search each by itself."""
        try:
            answers = self._searcher.search_together([job.queries for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answer.set_exception(error)
                return
            for job in jobs:
                self._answer([job])
        else:
            for job, answer in zip(jobs, answers, strict=True):
                job.answer.set_result(answer)
