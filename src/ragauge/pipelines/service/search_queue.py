"""One bounded queue of searches: requests that wait at the same time are searched in one call of
the index.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from ragauge.pipelines.retrieval.retriever import CancelledSearchError, Neighbours, Query, Retriever

# in one call: from 20 on faiss compares centroids by BLAS, whose last bits differ
MAX_JOINED_QUERIES = 19


class RefusedError(Exception):
    """A request that the server refuses: a status code and a message."""


@dataclass(eq=False)
class SearchJob:
    """One request in the queue or in search."""

    searcher: Retriever
    queries: Sequence[Query]
    arrived_s: float = field(default_factory=time.perf_counter)
    started_s: float | None = None
    abandoned: bool = False  # its caller no longer waits
    answer: Future[list[Neighbours]] = field(default_factory=Future)

    @property
    def queue_s(self) -> float:
        """Seconds between arrival and search."""
        return (self.started_s or time.perf_counter()) - self.arrived_s


class SearchQueue:
    def __init__(self, capacity: int, workers: int = 1, window_s: float = 0.0) -> None:
        """`capacity`: requests in the queue and in search; one more is refused.

        `workers`: searches at the same time. `window_s`: how long a request waits for others to
        join; 0: only those that wait already join.
        """
        self._capacity = capacity
        self._window_s = window_s
        self._changed = threading.Condition()
        self._unanswered = 0
        self.waiting: deque[SearchJob] = deque()
        self.running: list[SearchJob] = []  # in search
        # Searches have threads of their own: OpenMP keeps a team of threads for every thread that
        # ever searched.
        self._threads = ThreadPoolExecutor(workers, "search")

    def search(self, job: SearchJob, context: grpc.ServicerContext) -> list[Neighbours]:
        """Search a request, and wait for its answer no longer than its caller does.

        Raises:
            RefusedError: .
        """
        with self._changed:
            if self._unanswered == self._capacity:
                limit = f"{self._capacity} requests are under way, which is the limit"
                raise RefusedError(grpc.StatusCode.UNAVAILABLE, limit)
            self._unanswered += 1
            self.waiting.append(job)
            self._changed.notify_all()
        try:
            self._threads.submit(self._search_next)
            if not context.add_callback(lambda: self._abandon(job)):  # the call is over already
                self._abandon(job)
            return job.answer.result(context.time_remaining())
        except (CancelledError, CancelledSearchError, TimeoutError):
            self._abandon(job)
            late = "the request's time ran out before it was searched"
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
        finally:
            with self._changed:
                self._unanswered -= 1

    def close(self, grace_s: float) -> bool:
        """End the threads, each after its search; False if one still searches after `grace_s`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._changed:  # a search whose caller is gone is no request of the server's any more
            return self._changed.wait_for(lambda: not self.running, max(0.0, grace_s))

    def _abandon(self, job: SearchJob) -> None:
        """Take a request from the queue, or let its search stop; no effect once it is answered."""
        job.abandoned = True
        if job.answer.cancel():
            with self._changed:
                if job in self.waiting:
                    self.waiting.remove(job)

    def _search_next(self) -> None:
        """Search the first request with those that fit into its call; nothing where an earlier call
        has taken all.
        """
        jobs: list[SearchJob] = []
        with self._changed:
            if self._window_s and self.waiting:
                left_s = self._window_s - self.waiting[0].queue_s
                self._changed.wait_for(
                    lambda: sum(len(job.queries) for job in self.waiting) >= MAX_JOINED_QUERIES,
                    left_s,
                )
            queries = 0
            while self.waiting:
                job = self.waiting[0]
                queries += len(job.queries)
                if jobs and queries > MAX_JOINED_QUERIES:
                    break
                self.waiting.popleft()
                if job.answer.set_running_or_notify_cancel():
                    job.started_s = time.perf_counter()
                    jobs.append(job)
            self.running += jobs
        if jobs:
            _search(jobs)
        with self._changed:
            self.running = [job for job in self.running if job not in jobs]
            self._changed.notify_all()


def _search(jobs: Sequence[SearchJob]) -> None:
    """Search requests in one call and answer each; if the call fails, search each by itself."""
    requests = [job.queries for job in jobs]
    try:
        answers = jobs[0].searcher.search_together(
            requests, lambda: all(job.abandoned for job in jobs)
        )
    except Exception as error:
        if len(jobs) == 1:
            jobs[0].answer.set_exception(error)
        else:
            for job in jobs:
                _search([job])
        return
    for job, answer in zip(jobs, answers, strict=True):
        job.answer.set_result(answer)
