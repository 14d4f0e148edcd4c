"""Which requests are answered, and when: a bounded number in progress, a bounded number searching at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import grpc

LONGEST_WAIT_S = 60.0  # for a turn, of a request without a deadline

Result = TypeVar("Result")


class RefusedError(Exception):
    """The refusal of a request, with its status code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Admission:
    """Places for requests in progress, and workers that search for them."""

    def __init__(self, concurrent: int, workers: int) -> None:
        """
        Args:
            concurrent: requests in progress at the same time; one more is refused.
            workers: searches at the same time; other requests wait for their turn.
        """
        self._concurrent = concurrent
        self._places = threading.BoundedSemaphore(concurrent)
        self._running = 0
        self._count = threading.Lock()
        # Searches run in threads of their own: OpenMP keeps a team of threads for every thread that ever searched.
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="search")

    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self._running == 0

    def close(self) -> None:
        """Shut down the search threads."""
        self._workers.shutdown(wait=False)

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

    def in_turn(self, work: Callable[[], Result], context: grpc.ServicerContext) -> tuple[Result, float]:
        """(what the work gives, seconds until it began); waits for a worker no longer than the caller does."""
        arrived = time.perf_counter()

        def begin() -> tuple[Result, float]:
            if not context.is_active():
                raise RefusedError(grpc.StatusCode.CANCELLED, "the caller is gone")
            queue_s = time.perf_counter() - arrived
            return work(), queue_s

        left = context.time_remaining()
        turn = self._workers.submit(begin)
        try:
            return turn.result(LONGEST_WAIT_S if left is None else max(left, 0.0))
        except TimeoutError:
            if turn.cancel():
                raise RefusedError(
                    grpc.StatusCode.DEADLINE_EXCEEDED, "the request's time ran out before its turn to be searched"
                ) from None
            return turn.result()  # it is running and cannot be cancelled
