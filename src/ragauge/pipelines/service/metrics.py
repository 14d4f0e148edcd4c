"""Metrics of a retrieval server in Prometheus' text format. They hold no query, token or answer."""

from collections.abc import Mapping
from typing import Any

from ragauge.errors import UserError, explain_missing_extra
from ragauge.pipelines.service.search_queue import SearchQueue

SECONDS = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
JOINED = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class Metrics:
    """Counters and histograms of all requests, and gauges of the queue."""

    def __init__(self, queue: SearchQueue) -> None:
        """Raises UserError if the library `prometheus_client` is not installed."""
        with explain_missing_extra("metrics need the library prometheus_client"):
            import prometheus_client as prometheus
        self._start_http_server = prometheus.start_http_server
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)  # memory, processor time, open files
        shared: dict[str, Any] = {"registry": registry, "namespace": "ragauge"}
        self._requests = prometheus.Counter(
            "requests", "requests by call and status", ["call", "code"], **shared
        )
        self._queries = prometheus.Counter("queries", "queries of the answered requests", **shared)
        by_stage = "seconds of an answered request by stage"
        self._seconds = prometheus.Histogram(
            "stage_seconds", by_stage, ["stage"], buckets=SECONDS, **shared
        )
        self._joined = prometheus.Histogram(
            "joined_requests", "requests of a search call", buckets=JOINED, **shared
        )
        for name, description, value in (
            ("running_requests", "requests in search", lambda: len(queue.running)),
            ("waiting_requests", "requests in the queue", lambda: len(queue.waiting)),
            ("longest_search_seconds", "seconds of the oldest search that runs", queue.longest_s),
        ):
            prometheus.Gauge(name, description, **shared).set_function(value)

    def count_request(self, call: str, code: str, seconds: float) -> None:
        self._requests.labels(call, code).inc()
        if code == "OK":
            self._seconds.labels("total").observe(seconds)

    def count_search(self, queries: int, joined: int, seconds: Mapping[str, float]) -> None:
        self._queries.inc(queries)
        self._joined.observe(joined)
        for stage, value in seconds.items():
            self._seconds.labels(stage).observe(value)

    def serve(self, host: str, port: int) -> str:
        """Answer at http://HOST:PORT/metrics from a thread; the address.

        Raises:
            UserError: the port is taken.
        """
        try:
            server: Any = self._start_http_server(port, host, self._registry)[0]
        except OSError as error:
            raise UserError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        return f"{host}:{server.server_port}"
