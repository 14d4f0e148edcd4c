"""The retrieval service: a searcher behind gRPC.

The service returns exactly its searcher's answers. It checks every field before it searches, bounds what one request
and what all of them together may take, honours deadlines, and on SIGTERM finishes what runs and refuses what is new.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Searcher
from ragauge.retrieval.service import wire
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.wire import About, Limits

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
GRACE_S = 30.0  # for requests under way when the server is told to stop
LONGEST_WAIT_S = 60.0  # for a turn, of a request without a deadline
SPARE_THREADS = 8  # beside those of the admitted requests: health, descriptions, refusals
WAITING_CALLS = 256  # calls that may wait for a thread; gRPC itself refuses more
SHOWN = 60  # characters of a refused value in a message
MAX_BUDGET_S = 3600.0

Detokenize = Callable[[list[list[int]]], list[str]]


@dataclass(frozen=True)
class TLS:
    """The server's certificate chain and private key, as PEM files."""

    certificate: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Raises UserError on files that are missing, not PEM, or do not match."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
            return grpc.ssl_server_credentials([(self.key.read_bytes(), self.certificate.read_bytes())])
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UserError(f"TLS: {self.certificate} and {self.key} cannot be used: {reason}") from error


Request = TypeVar("Request", bound=Message)
Result = TypeVar("Result")


class RefusedError(Exception):
    """A request that is not answered, with its status code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


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
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        workers: int = 1,
        detokenize: Detokenize | None = None,
    ) -> None:
        """
        Args:
            searcher: answers the queries; called from several threads, at most `workers` at a time.
            about: what it holds.
            host: address to listen on.
            port: 0 lets the system choose.
            tls: without it, nothing is encrypted and no server is authenticated.
            workers: searches at the same time.
            detokenize: token sequences to texts, by the database's tokenizer; without it that call is not offered.

        Raises:
            UserError: the address cannot be listened on, or the certificate cannot be used.
        """
        self._service = _Service(searcher, about, limits, workers, detokenize)
        self._health = health.HealthServicer()
        self._server = grpc.server(
            ThreadPoolExecutor(limits.concurrent + SPARE_THREADS, thread_name_prefix="retrieval"),
            handlers=[self._service.handlers()],
            options=_options(limits),
            maximum_concurrent_rpcs=limits.concurrent + SPARE_THREADS + WAITING_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
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
        for name in ("", wire.SERVICE):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Refuse new requests and wait for running ones; False if any still ran after `grace_s`."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s)
        self._service.close()
        return self._service.is_idle()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Service:
    """The handlers of the calls. Messages are parsed here, since gRPC logs a malformed one as an internal error."""

    def __init__(
        self, searcher: Searcher, about: About, limits: Limits, workers: int, detokenize: Detokenize | None
    ) -> None:
        self._searcher, self._about, self._limits, self._detokenize = searcher, about, limits, detokenize
        # Searches run in threads of their own: OpenMP keeps a team of threads for every thread that ever searched.
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="search")
        self._places = threading.BoundedSemaphore(limits.concurrent)
        self._running = 0
        self._count = threading.Lock()

    def handlers(self) -> grpc.GenericRpcHandler:
        """All calls, from bytes to bytes."""
        calls = {"Search": self.search, "Describe": self.describe}
        if self._detokenize is not None:
            calls["Detokenize"] = self.detokenize
        return grpc.method_handlers_generic_handler(
            wire.SERVICE, {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        )

    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self._running == 0

    def close(self) -> None:
        """Shut down the search threads."""
        self._workers.shutdown(wait=False)

    def describe(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """Any message is valid, since the request has no fields."""
        return wire.description(self._about, self._limits).SerializeToString()

    def search(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """The neighbours of a request's queries."""
        return self._answered(self._search, data, context)

    def detokenize(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """The texts of a request's token sequences."""
        return self._answered(self._texts, data, context)

    def _answered(
        self, answer: Callable[[bytes, grpc.ServicerContext], bytes], data: bytes, context: grpc.ServicerContext
    ) -> bytes:
        """The answer, or an abort with the status that says why there is none."""
        try:
            with self._admitted():
                return answer(data, context)
        except RefusedError as refusal:
            _abort(context, refusal.code, refusal)
        except UserError as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        except Exception as error:
            logger.exception("a request failed")
            _abort(context, grpc.StatusCode.INTERNAL, f"it failed ({type(error).__name__}); see the server's log")

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """A slot among the requests in progress; refused, not queued, when all are taken."""
        if not self._places.acquire(blocking=False):
            raise RefusedError(
                grpc.StatusCode.UNAVAILABLE, f"{self._limits.concurrent} requests are under way, which is the limit"
            )
        with self._count:
            self._running += 1
        try:
            yield
        finally:
            with self._count:
                self._running -= 1
            self._places.release()

    def _texts(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = _parsed(pb.DetokenizeRequest, data)
        _between("sequences", len(request.sequences), 1, self._limits.queries)
        for i, sequence in enumerate(request.sequences):
            _check_tokens(f"sequences[{i}]", sequence.ids, self._about, self._limits)
        assert self._detokenize is not None
        sequences = [list(sequence.ids) for sequence in request.sequences]
        texts, _ = self._in_turn(partial(self._detokenize, sequences), context)
        return pb.DetokenizeReply(texts=texts).SerializeToString()

    def _search(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = _parsed(pb.SearchRequest, data)
        check(request, self._about, self._limits)
        queries = [wire.query(message) for message in request.queries]
        results, queue_s = self._in_turn(partial(self._searcher.search, queries), context)
        return wire.reply(request.request_id, results, queue_s).SerializeToString()

    def _in_turn(self, work: Callable[[], Result], context: grpc.ServicerContext) -> tuple[Result, float]:
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


def _parsed(kind: type[Request], data: bytes) -> Request:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT, f"the message of {len(data)} bytes is not a {kind.DESCRIPTOR.full_name}"
        ) from None


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, message: object) -> NoReturn:
    context.abort(code, str(message))
    raise AssertionError("abort returned")


# --- the fields of a request ---


def check(request: pb.SearchRequest, about: About, limits: Limits) -> None:
    """Raises RefusedError naming the first field that is out of bounds, its value, and what is allowed."""
    _between("request_id", len(request.request_id), 1, 128, "characters")
    _between("queries", len(request.queries), 1, limits.queries, "queries")
    for i, query in enumerate(request.queries):
        _check_query(f"queries[{i}]", query, about, limits)
    chunks = sum(query.k * (1 + query.continuation) for query in request.queries)
    _between("queries", chunks, 1, limits.chunks, "chunks (k times 1 + continuation, over all queries)")


def _check_query(place: str, query: pb.Query, about: About, limits: Limits) -> None:
    content = query.WhichOneof("content")
    if content is None:
        _refuse(place, "neither tokens nor text", "one of the two")
    if content == "text":
        _check_text(f"{place}.text", query.text, limits)
    else:
        _check_tokens(f"{place}.tokens", query.tokens.ids, about, limits)
    _between(f"{place}.k", query.k, 1, limits.k)
    _between(f"{place}.continuation", query.continuation, 0, limits.continuation)
    _check_effort(place, query, about)


def _check_text(place: str, text: str, limits: Limits) -> None:
    _between(place, len(text), 1, limits.characters, "characters")
    if not text.strip():
        _refuse(place, repr(text[:SHOWN]), "text that is not white space alone")


def _check_tokens(place: str, ids: Sequence[int], about: About, limits: Limits) -> None:
    _between(place, len(ids), 1, limits.tokens, "tokens")
    for i, token in enumerate(ids):
        _between(f"{place}[{i}]", token, 0, about.vocabulary - 1)


def _check_effort(place: str, query: pb.Query, about: About) -> None:
    """Effort or a budget, each within its range, and not both."""
    if query.HasField("effort") and query.HasField("budget_s"):
        _refuse(place, f"effort {query.effort} and budget_s {query.budget_s}", "at most one of the two")
    if query.HasField("effort"):
        _between(f"{place}.effort", query.effort, 1, about.most_effort or 1)
    if query.HasField("budget_s") and not (math.isfinite(query.budget_s) and 0 < query.budget_s <= MAX_BUDGET_S):
        _refuse(f"{place}.budget_s", query.budget_s, f"seconds above 0, to {MAX_BUDGET_S:g}")


def _between(place: str, value: int, low: int, high: int, unit: str = "") -> None:
    if not low <= value <= high:
        _refuse(place, f"{value} {unit}".strip(), f"from {low} to {high}")


def _refuse(place: str, value: object, allowed: str) -> NoReturn:
    raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{place}: {value}; must be {allowed}")


# --- addresses ---


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),  # what is sent is bounded by `chunks`
        ("grpc.compression_enabled_algorithms_bitset", 1),  # no compression: a megabyte could unpack to a gigabyte
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not load sharing
    ]
