"""How a retrieval server runs: the options of `ragauge serve`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

LONG_WORK = 1024
FORKS = "RAGAUGE_FORKS"  # in the environment of a run's jobs: the command `ragauge` that forks (verbs/_warm.py)


class ServerSettings(BaseModel):
    """Address, threads, and the limits on one request and on all of them together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: int = Field(50051, ge=0, le=65535, description="port to listen on; 0: chosen by the system")
    host: str = Field("127.0.0.1", description="address to listen on; 127.0.0.1 can only be reached from this machine")
    socket: Path | None = Field(None, description="Unix socket to listen on, instead of host and port; default: none")
    socket_mode: str = Field(
        "600", pattern="^0?[0-7]{3}$", description="permissions of the socket: who may write to it may ask"
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port of metrics in Prometheus' format (0: any free one); default: none",
    )
    metrics_host: str = Field("127.0.0.1", description="address of the metrics")
    request_log: Path | None = Field(None, description="file that gets a line of JSON for each request; default: none")
    hang: float = Field(60.0, gt=0, description="seconds of one search after which health says NOT_SERVING")
    threads: int | None = Field(
        None, ge=1, le=1024, description="threads per search; default: all cores available to the server"
    )
    grace: float = Field(
        30.0, ge=0, le=86400, description="seconds that running requests get when the server is stopped"
    )
    max_queries: int = Field(256, ge=1, le=65536, description="maximum queries in one request")
    max_concurrent: int = Field(64, ge=1, le=4096, description="maximum requests in progress")
    workers: int = Field(1, ge=1, le=64, description="calls of short requests at a time; long ones have one more")
    window_ms: float = Field(
        0.0, ge=0, le=1000, description="how long a request waits for others to be searched in one call with"
    )
    long_work: int = Field(
        LONG_WORK, ge=1, description="nprobe (lists scanned), summed over its queries, from which a request is long"
    )
    max_work: int = Field(
        1 << 18, ge=1, le=(1 << 32) - 1, description="maximum nprobe of one request, summed over its queries"
    )
    client_requests: float | None = Field(None, gt=0, description="requests a second of one client; default: no limit")
    client_queries: float | None = Field(None, gt=0, description="queries a second of one client; default: no limit")
    client_lists: float | None = Field(
        None, gt=0, description="nprobe (lists scanned) a second of one client; default: no limit"
    )
    max_message_bytes: int = Field(1 << 20, ge=1024, le=1 << 30, description="maximum bytes of a request")
