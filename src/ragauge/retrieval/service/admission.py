"""Which requests are answered, and when: a bounded number in progress, lanes for their searches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

import grpc

from ragauge.retrieval.indexes._base import CancelledSearchError
from ragauge.retrieval.retriever import Neighbours
from ragauge.retrieval.service.lanes import TOGETHER, Lane, LaneJob
from ragauge.retrieval.service.settings import LONG_WORK

LONGEST_WAIT_S = 60.0  # for a turn, of a request without a deadline


class RefusedError(Exception):
    """The refusal of a request, with its status code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Admission:
    """Places for requests in progress, and the lanes in which they are searched."""

    def __init__(self, concurrent: int, workers: int = 1, window_s: float = 0.0, long_work: int = LONG_WORK) -> None:
        """
        Args:
            concurrent: requests in progress at the same time; one more is refused.
            workers: calls of short requests at the same time; long ones have one worker of their own.
            window_s: how long a short request waits for others to be searched with.
            long_work: nprobe, summed over its queries, from which a request is a long one.
        """
        self._concurrent, self._long_work = concurrent, long_work
        self._places = threading.BoundedSemaphore(concurrent)
        self._running = 0
        self._count = threading.Lock()
        # Searches run in threads of their own: OpenMP keeps a team of threads for every thread that ever searched.
        self._short = Lane("short", workers, window_s, TOGETHER)
        self._long = Lane("long", 1)

    @property
    def running(self) -> int:
        """Requests in progress."""
        return self._running

    @property
    def waiting(self) -> dict[str, int]:
        """Requests that wait for their search, by lane."""
        return {"short": self._short.waiting, "long": self._long.waiting}

    def longest_s(self) -> float:
        """Seconds that the oldest running search has taken so far."""
        return max(self._short.longest_s(), self._long.longest_s())

    def close(self) -> None:
        """Shut down the search threads."""
        self._short.close()
        self._long.close()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A slot among the requests in progress; refused, not queued, when all are taken."""
        if not self._places.acquire(blocking=False):
            raise RefusedError(
                grpc.StatusCode.UNAVAILABLE, f"{self._concurrent} requests are under way, which is the limit"
            )
        with self._count:
            self._running += 1
        try:
            yield
        finally:
            with self._count:
                self._running -= 1
            self._places.release()

    def searched(self, job: LaneJob, work: int, context: grpc.ServicerContext) -> list[Neighbours]:
        """The answer to a request of this much work; waits for it no longer than its caller does."""
        lane = self._long if work >= self._long_work else self._short
        if not context.add_callback(lambda: lane.drop(job)):
            raise RefusedError(grpc.StatusCode.CANCELLED, "the caller is gone")
        lane.submit(job)
        left = context.time_remaining()
        try:
            try:
                return job.answer.result(LONGEST_WAIT_S if left is None else max(left, 0.0))
            except TimeoutError:
                (lane.withdraw if left is None else lane.drop)(job)
                return job.answer.result()  # of a search that runs, which stops at its next check if it was dropped
        except (CancelledError, CancelledSearchError):
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            raise RefusedError(code, "the request's time ran out before it was searched") from None
