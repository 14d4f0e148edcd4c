"""What became of each request: kept as metrics in Prometheus' text format, and as lines of a log.

Neither holds a query, a token or what was found.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, extras_told

logger = logging.getLogger(__name__)

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LISTS = tuple(float(4**power) for power in range(10))
JOINED = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass
class Finished:
    """One request, answered or not."""

    call: str
    client: str
    request_id: str = ""  # as the client chose it
    code: str = "OK"  # gRPC's name of the status
    queries: int = 0
    lists: int = 0  # nprobe of its searches, summed over the queries
    joined: int = 0  # requests in the call of the index that searched it
    bytes: int = 0  # of the reply
    seconds: dict[str, float] = field(default_factory=dict)  # by stage, and `total` in the server


Observer = Callable[[Finished], None]


class RequestLog:
    """One JSON object a line for each request. A disk that takes no more lines costs the log, not the request."""

    def __init__(self, path: Path) -> None:
        """Raises UserError if the file cannot be written."""
        self._path, self._lock, self._failed = path, threading.Lock(), False
        self._file = self._opened()

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise UserError(f"--request-log {self._path}: cannot be written: {error.strerror}") from error

    def __call__(self, request: Finished) -> None:
        """Write one line."""
        seconds = {stage: round(value, 6) for stage, value in request.seconds.items()}
        line = json.dumps({"time": round(time.time(), 3), **asdict(request), "seconds": seconds}) + "\n"
        try:
            with self._lock:
                os.write(self._file, line.encode())
        except OSError as error:
            if not self._failed:
                logger.warning("%s: requests are no longer logged: %s", self._path, error.strerror)
            self._failed = True

    def reopen(self) -> None:
        """Open the file again by its name, after it was moved away."""
        with self._lock:
            former, self._file = self._file, self._opened()
            os.close(former)


class Metrics:
    """Counters and histograms of all requests, and gauges that are read when they are asked for."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """
        Args:
            gauges: (what it is, its value now) by name.

        Raises:
            UserError: the library `prometheus_client` is not installed.
        """
        with extras_told("metrics need the library prometheus_client"):
            import prometheus_client as prometheus
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)  # memory, processor time, open files
        made = {"registry": registry, "namespace": "ragauge"}
        self._requests = prometheus.Counter("requests", "requests by call and status", ["call", "code"], **made)
        self._queries = prometheus.Counter("queries", "queries of the requests", **made)
        self._seconds = prometheus.Histogram(
            "stage_seconds", "seconds of an answered request by stage", ["stage"], buckets=SECONDS, **made
        )
        self._lists = prometheus.Histogram(
            "lists", "nprobe (lists scanned) of a request, over its queries", buckets=LISTS, **made
        )
        self._joined = prometheus.Histogram(
            "joined_requests", "requests in the call of the index that searched a request", buckets=JOINED, **made
        )
        for name, (text, value) in gauges.items():
            prometheus.Gauge(name, text, **made).set_function(value)

    def __call__(self, request: Finished) -> None:
        """Count one request."""
        self._requests.labels(request.call, request.code).inc()
        self._queries.inc(request.queries)
        if request.code != "OK":
            return
        for stage, seconds in request.seconds.items():
            self._seconds.labels(stage).observe(seconds)
        if request.joined:
            self._lists.observe(request.lists)
            self._joined.observe(request.joined)

    def serve(self, host: str, port: int) -> str:
        """Answer at http://HOST:PORT/metrics from a thread; the address. Raises UserError if the port is taken."""
        import prometheus_client as prometheus

        try:
            server: Any = prometheus.start_http_server(port, host, self._registry)[0]
        except OSError as error:
            raise UserError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        return f"{host}:{server.server_port}"
