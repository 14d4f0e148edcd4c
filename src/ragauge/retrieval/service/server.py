"""The retrieval service: a searcher behind gRPC, from start to stop.

The service returns exactly its searcher's answers. It checks and bounds every field before it searches (`requests`),
limits how many requests run at a time and honours their deadlines (`admission`), limits each client (`quotas`),
searches requests together (`lanes`), and answers with a result or a status (`calls`). On SIGTERM it finishes what runs
and refuses what is new.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Searcher
from ragauge.retrieval.service import access, wire
from ragauge.retrieval.service.access import Guard
from ragauge.retrieval.service.admission import Admission
from ragauge.retrieval.service.calls import Calls, Detokenize, LoadedIndex
from ragauge.retrieval.service.finished import Observer
from ragauge.retrieval.service.outbox import MOST_BYTES
from ragauge.retrieval.service.quotas import Quotas, Rates
from ragauge.retrieval.service.settings import LONG_WORK
from ragauge.retrieval.service.sockets import listen_on
from ragauge.retrieval.service.wire import About, RequestLimits

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
GRACE_S = 30.0  # for requests under way when the server is told to stop
SPARE_THREADS = 8  # beside those of the admitted requests: health, descriptions, refusals
HANG_S = 60.0  # of one search
WATCH_S = 0.5
WAITING_CALLS = 256  # calls that may wait for a thread; gRPC itself refuses more


@dataclass(frozen=True)
class TLS:
    """The server's certificate chain and private key, and the authorities whose clients it lets in, as PEM files."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # None: clients need no certificate

    def credentials(self) -> grpc.ServerCredentials:
        """Raises UserError on files that are missing, not PEM, or do not match."""
        pair = access.read_pair(self.certificate, self.key)
        authorities = access.read_authorities(self.client_ca) if self.client_ca else None
        return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)


class Server:
    """Serves a searcher at `address` from `start` to `stop`.

    with Server(retriever, about) as server:
        Client(server.address).search(queries)
    """

    def __init__(
        self,
        searcher: Searcher,
        about: About,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        tls: TLS | None = None,
        limits: RequestLimits = RequestLimits(),  # noqa: B008 (frozen)
        workers: int = 1,
        window_s: float = 0.0,
        long_work: int = LONG_WORK,
        rates: Rates = Rates(),  # noqa: B008 (frozen)
        detokenize: Detokenize | None = None,
        token: str | None = None,
        socket: Path | None = None,
        socket_mode: int = 0o600,
        hang_s: float = HANG_S,
        observers: Sequence[Observer] = (),
    ) -> None:
        """
        Args:
            searcher: answers the queries; called from `workers` threads, and one for long requests.
            about: what it holds.
            host: address to listen on.
            port: 0 lets the system choose.
            tls: without it, nothing is encrypted and no server is authenticated.
            workers: calls of short requests at the same time.
            window_s: how long a short request waits for others, to be searched in one call with them.
            long_work: nprobe, summed over its queries, from which a request is a long one.
            rates: the most that one client may ask for in a second.
            detokenize: token sequences to texts, by the database's tokenizer; without it that call is not offered.
            token: what every call must carry; None: anyone who reaches the address may ask.
            socket: a Unix socket to listen on, in place of an address.
            socket_mode: its permissions: who may write to it may ask.
            hang_s: a search that takes longer turns health to NOT_SERVING until it ends.
            observers: told of each request when it is answered or refused.

        Raises:
            UserError: the address or the socket cannot be listened on, or the certificate cannot be used.
        """
        self._admission = Admission(limits.concurrent, workers, window_s, long_work)
        served = LoadedIndex(searcher, about, detokenize)
        self._calls = calls = Calls(served, limits, self._admission, Quotas(rates), observers)
        self._hang_s, self._stopped = hang_s, threading.Event()
        self._health = health.HealthServicer()
        self._server = grpc.server(
            ThreadPoolExecutor(limits.concurrent + SPARE_THREADS, thread_name_prefix="retrieval"),
            handlers=[calls.handlers()],
            interceptors=[Guard(token)] if token else [],
            options=_options(limits),
            maximum_concurrent_rpcs=limits.concurrent + SPARE_THREADS + WAITING_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if socket:
            self.address = listen_on(self._server, socket, socket_mode)
        else:
            self.address = f"{_bracketed(host)}:{self._listen(host, port, tls)}"

    def _listen(self, host: str, port: int, tls: TLS | None) -> int:
        wanted = f"{_bracketed(host)}:{port}"
        try:
            if tls is None:
                return self._server.add_insecure_port(wanted)
            return self._server.add_secure_port(wanted, tls.credentials())
        except RuntimeError as error:
            raise UserError(f"cannot listen on {wanted}: the port is taken, or no address of this machine") from error

    def start(self) -> None:
        """Start serving; health becomes SERVING."""
        self._server.start()
        self._tell_health(True)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    @property
    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """What metrics may ask at any time: (what it is, its value now) by name."""
        admission, outbox = self._admission, self._calls.outbox
        return {
            "running_requests": ("requests in progress", lambda: admission.running),
            "waiting_short": ("requests that wait in the short lane", lambda: admission.waiting["short"]),
            "waiting_long": ("requests that wait in the long lane", lambda: admission.waiting["long"]),
            "longest_search_seconds": ("seconds of the oldest search that runs", admission.longest_s),
            "unread_reply_bytes": ("bytes of replies that their callers have not read", lambda: outbox.held_bytes),
        }

    def exchange(self, served: LoadedIndex) -> None:
        """Answer new requests from another index; those under way end with the one that they began with."""
        self._calls.served = served

    def is_hung(self) -> bool:
        """Whether a search takes longer than it may."""
        return self._admission.longest_s() > self._hang_s

    def _tell_health(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in ("", wire.SERVICE):
            self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    def _watch(self) -> None:
        """Turn health while a search hangs, and end calls whose replies nobody reads."""
        hung = False
        while not self._stopped.wait(min(WATCH_S, self._hang_s / 4)):
            self._calls.outbox.cancel_unread()
            if self.is_hung() != hung:
                hung = not hung
                message = "a search has run for more than %g s: not serving" if hung else "no search over %g s any more"
                logger.warning(message, self._hang_s)
                self._tell_health(not hung)

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Refuse new requests and wait for running ones; False if any still ran after `grace_s`."""
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s)
        self._admission.close()
        return self._admission.running == 0

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def most_bytes(limits: RequestLimits) -> dict[str, int]:
    """The most memory of requests and of replies, beside that of index and encoder."""
    calls = limits.concurrent + SPARE_THREADS + WAITING_CALLS
    return {"requests": calls * limits.message_bytes, "replies": MOST_BYTES}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _options(limits: RequestLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),  # what is sent is bounded by `chunks`
        ("grpc.compression_enabled_algorithms_bitset", 1),  # no compression: a megabyte could unpack to a gigabyte
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not load sharing
    ]
