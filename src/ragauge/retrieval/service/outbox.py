"""Replies on their way to slow readers: the memory that they take is bounded, and none waits for ever."""

from __future__ import annotations

import threading
import time

import grpc

from ragauge.retrieval.service.admission import RefusedError

MOST_BYTES = 256 << 20  # of replies that their callers have not read
READ_S = 60.0  # that a caller without a deadline has to read its reply


class Outbox:
    """Counts what gRPC holds of replies until their calls have ended."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._held = most_bytes, 0
        self._lock = threading.Lock()
        self._since: dict[int, tuple[float, grpc.ServicerContext]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of replies that are not sent yet."""
        return self._held

    def sent(self, reply: bytes, context: grpc.ServicerContext) -> bytes:
        """The reply, counted until its call ends. Raises RefusedError if it would take too much memory."""
        with self._lock:
            if self._held + len(reply) > self._most:
                raise RefusedError(
                    grpc.StatusCode.UNAVAILABLE, f"{self._held} bytes of replies wait for callers that read slowly"
                )
            self._held += len(reply)
            self._since[id(context)] = (time.monotonic(), context)
        if not context.add_callback(lambda: self._ended(len(reply), id(context))):
            self._ended(len(reply), id(context))
        return reply

    def cancel_unread(self, read_s: float = READ_S) -> None:
        """End the calls whose replies were not read in time."""
        with self._lock:
            late = [context for since, context in self._since.values() if time.monotonic() - since > read_s]
        for context in late:
            context.cancel()

    def _ended(self, size: int, key: int) -> None:
        with self._lock:
            if self._since.pop(key, None):
                self._held -= size
