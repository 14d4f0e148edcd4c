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

    searcher: Retriever
    queries: Sequence[Query]
    arrived_s: float = field(default_factory=time.perf_counter)
    queue_s: float = 0.0  # seconds between arrival and search
    answer: Future[list[Neighbours]] = field(default_factory=Future)


class SearchQueue:
    def __init__(self, capacity: int, workers: int = 1) -> None:
        """`capacity`: requests in the queue and in search; one more is refused.

        `workers`: searches at the same time.
        """
        self._capacity = capacity
        self._room = threading.BoundedSemaphore(capacity)
        self._lock = threading.Lock()
        self.waiting: deque[SearchJob] = deque()
        self.running: set[Future[list[Neighbours]]] = set()  # answers of what is in search
        # Searches have threads of their own: OpenMP keeps a team of threads for every thread that
        # ever searched.
        self._threads = ThreadPoolExecutor(workers, "search")

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
            self._threads.submit(self._search_next)
            if not context.add_callback(job.answer.cancel):  # the call is over already
                job.answer.cancel()
            return job.answer.result(context.time_remaining())
        except (CancelledError, TimeoutError):
            job.answer.cancel()
            late = "the request's time ran out before it was searched"
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
        finally:
            self._room.release()

    def close(self, grace_s: float) -> bool:
        """End the threads, each after its search; False if one still searches after `grace_s`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:  # a search whose caller is gone is no request of the server's any more
            running = list(self.running)
        return not wait(running, max(0.0, grace_s)).not_done

    def _search_next(self) -> None:
        """Search the first request with those that fit into its call; nothing where an earlier call
        has taken all.
        """
        jobs: list[SearchJob] = []
        room = MAX_JOINED_QUERIES
        with self._lock:
            while self.waiting and (not jobs or len(self.waiting[0].queries) <= room):
                job = self.waiting.popleft()
                if job.answer.set_running_or_notify_cancel():
                    job.queue_s = time.perf_counter() - job.arrived_s
                    jobs.append(job)
                    room -= len(job.queries)
            self.running |= {job.answer for job in jobs}
        if jobs:
            _search(jobs)
        with self._lock:
            self.running -= {job.answer for job in jobs}


def _search(jobs: Sequence[SearchJob]) -> None:
    """Search requests in one call and answer each; if the call fails, search each by itself."""
    requests = [job.queries for job in jobs]
    try:
        answers = jobs[0].searcher.search_together(requests)
    except Exception as error:
        if len(jobs) == 1:
            jobs[0].answer.set_exception(error)
        else:
            for job in jobs:
                _search([job])
        return
    for job, answer in zip(jobs, answers, strict=True):
        job.answer.set_result(answer)
