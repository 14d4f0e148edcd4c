"""The client of the retrieval service: the same queries and answers as a retriever of this process.

Every call has a deadline and ends within it, whatever happens to the server. A call that cannot be answered is a
`RetrievalError` that names server and request; no substitute answer is ever returned.
"""

from __future__ import annotations

import itertools
import queue
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service import wire
from ragauge.retrieval.service.access import Bearer, read_authorities, read_pair, read_token
from ragauge.retrieval.service.address import check_address
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.wire import About

DEADLINE_S = 10.0
REPLY_BYTES = 64 << 20
RETRY_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
PINGS = 9
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", REPLY_BYTES),
    ("grpc.enable_http_proxy", 0),  # a proxy set in the environment is meant for web traffic
    ("grpc.use_local_subchannel_pool", 1),  # do not share another client's reconnection back-off
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5000),  # despite its name: the timeout of one connection attempt
    ("grpc.max_reconnect_backoff_ms", 1000),
]
WHAT = {
    grpc.StatusCode.UNAVAILABLE: "the server cannot be reached, was lost, or takes no more requests",
    grpc.StatusCode.INVALID_ARGUMENT: "refused",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too large",
    grpc.StatusCode.UNAUTHENTICATED: "not let in",
    grpc.StatusCode.UNIMPLEMENTED: "not offered by what listens there",
}


class RetrievalError(UserError):
    """A retrieval that was not answered; the message names server and request."""


class LostError(RetrievalError):
    """The server could not be reached, was lost, or did not answer in time."""


class Client:
    """Asks one server. Thread-safe; as a context manager it closes the connection."""

    def __init__(
        self,
        address: str,
        *,
        deadline_s: float = DEADLINE_S,
        retries: int = 0,
        tls_ca: Path | None = None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        token: Path | None = None,
        channels: int = 1,
        hedge_s: float | None = None,
    ) -> None:
        """
        Args:
            address: host:port, or unix:/PATH of a socket.
            deadline_s: deadline of each call in seconds, including retries.
            retries: how often a call is sent again, within its deadline, when the server is not there, was lost or
                takes no more requests, or has not answered in half of the time that is left; a search changes
                nothing, so it may be sent twice.
            tls_ca: PEM file of the certificates that the server's is checked against; without it, no TLS.
            tls_cert: PEM file of the client's own certificate chain, for a server that asks for one.
            tls_key: PEM file of its private key.
            token: file of the token that the server wants.
            channels: connections, which calls use in turn.
            hedge_s: a call without an answer after that time is sent a second time over another connection; the first
                answer is taken and the other attempt cancelled. Counted from its start, checked by `result`.

        Raises:
            UserError: an invalid address, a deadline that is not above 0, a negative number of retries, or a
                certificate or token file that cannot be read. No connection is made before the first call.
        """
        check_address(address)
        if not 0 < deadline_s < float("inf"):
            raise UserError(f"retrieval deadline: {deadline_s}; must be seconds above 0")
        if retries < 0:
            raise UserError(f"retrieval retries: {retries}; must be a number from 0")
        self.address, self.deadline_s, self.retries = address, deadline_s, retries
        if channels < 1 or (hedge_s is not None and not 0 < hedge_s < deadline_s):
            raise UserError(
                f"retrieval client: {channels} channels, hedge after {hedge_s} s; must be from 1, within the deadline"
            )
        self.hedge_s = hedge_s
        credentials = _credentials(tls_ca, tls_cert, tls_key)
        self._channels = [_channel(address, credentials) for _ in range(max(channels, 1 if hedge_s is None else 2))]
        if token:
            bearer = Bearer(read_token(token))
            self._channels = [grpc.intercept_channel(channel, bearer) for channel in self._channels]
        self._channel = self._channels[0]
        self._search = [call_of(channel, "Search", pb.SearchReply) for channel in self._channels]
        self._describe = [call_of(channel, "Describe", pb.Description) for channel in self._channels]
        self._detokenize = [call_of(channel, "Detokenize", pb.DetokenizeReply) for channel in self._channels]
        self._turns = itertools.count()
        self._numbers, self._name = itertools.count(1), uuid.uuid4().hex[:12]

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """The neighbours of each query, in order; `seconds` also has the stages `queue` and `network`.

        Raises:
            RetrievalError: no answer within the deadline, or a refusal.
        """
        return self.start(queries).result()

    def start(self, queries: Sequence[Query]) -> Pending:
        """Send a search and return immediately; its deadline starts now."""
        request = wire.request(f"{self._name}-{next(self._numbers)}", queries)
        return Pending(self, request, self._search)

    def describe(self) -> About:
        """Describe what the server holds. Raises RetrievalError as `search` does."""
        call = _Call(self, "describe", pb.DescribeRequest(), self._describe)
        return wire.about(call.result())

    def detokenize(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Tokens of the server's database as text, one for each sequence. Raises RetrievalError as `search` does."""
        request = pb.DetokenizeRequest(sequences=[pb.Tokens(ids=sequence) for sequence in sequences])
        return list(_Call(self, "detokenize", request, self._detokenize).result().texts)

    def wait_until_ready(self, limit_s: float) -> None:
        """Wait until the server reports that it is serving. Raises RetrievalError when it does not within `limit_s`."""
        stub: Any = health_pb2_grpc.HealthStub(self._channel)
        request = health_pb2.HealthCheckRequest(service=wire.SERVICE)
        end = time.monotonic() + limit_s
        try:
            while stub.Check(request, timeout=end - time.monotonic(), wait_for_ready=True).status != SERVING:
                time.sleep(RETRY_PAUSE_S)
        except grpc.RpcError as error:
            raise self.error("health", error, limit_s) from error

    def round_trip_s(self) -> float:
        """Seconds of a message there and back without a search: the median of calls of health, the first not counted.

        Raises:
            RetrievalError: no answer within the deadline.
        """
        stub: Any = health_pb2_grpc.HealthStub(self._channel)
        request = health_pb2.HealthCheckRequest(service=wire.SERVICE)
        seconds = []
        try:
            for _ in range(1 + PINGS):
                started = time.perf_counter()
                stub.Check(request, timeout=self.deadline_s)
                seconds.append(time.perf_counter() - started)
        except grpc.RpcError as error:
            raise self.error("health", error, self.deadline_s) from error
        return statistics.median(seconds[1:])

    def close(self) -> None:
        """Close the connection; calls in progress end with an error."""
        for channel in self._channels:
            channel.close()

    def next_of(self, calls: Sequence[grpc.UnaryUnaryMultiCallable]) -> grpc.UnaryUnaryMultiCallable:
        """The call over the next of the channels, in turn."""
        return calls[next(self._turns) % len(calls)]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def error(self, request: str, error: grpc.RpcError, deadline_s: float) -> RetrievalError:
        """The error of a call that failed."""
        code, details = error.code(), error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self.said(request, f"no answer within {deadline_s:g} s ({details})", LostError)
        kind = LostError if code is grpc.StatusCode.UNAVAILABLE else RetrievalError
        return self.said(request, f"{WHAT.get(code, code.name.lower())}: {details}", kind)

    def said(self, request: str, message: str, kind: type[RetrievalError] = RetrievalError) -> RetrievalError:
        """An error that names this server and a request."""
        return kind(f"retrieval server {self.address}, {request}: {message}")


SERVING = health_pb2.HealthCheckResponse.SERVING


class _Call:
    """One call of the server, sent again where its client asks for that; ends within the deadline."""

    def __init__(self, client: Client, name: str, request: Any, calls: Sequence[grpc.UnaryUnaryMultiCallable]) -> None:
        """
        Args:
            calls: the same call over each channel of the client.
        """
        self._client, self._name, self._request, self._calls = client, name, request, calls
        self._began = time.monotonic()
        self._end = self._began + client.deadline_s
        self._retries_left, self._hedge_s = client.retries, client.hedge_s
        self._open: set[grpc.Future] = set()
        self._ended: queue.SimpleQueue[tuple[grpc.Future, float]] = queue.SimpleQueue()  # with the time of its end
        self._answer: tuple[Any, float] | None = None
        self._send(client.deadline_s)

    def result(self) -> Any:
        """The reply. Raises RetrievalError."""
        return self._answered()[0]

    def _answered(self) -> tuple[Any, float]:
        """(reply, seconds since the call began); the first answer wins, and what else runs of the call is cancelled."""
        while self._answer is None:
            future, ended = self._next()
            self._open.discard(future)
            try:
                self._answer = future.result(), ended - self._began
            except grpc.FutureCancelledError:
                raise self._client.said(self._name, "cancelled") from None
            except grpc.RpcError as error:
                if not self._open and not self._send_again(error):
                    raise self._client.error(self._name, error, self._client.deadline_s) from error
        self.cancel()
        return self._answer

    def _next(self) -> tuple[grpc.Future, float]:
        """The next attempt that ends, after a second one was sent if the first takes too long."""
        if self._hedge_s is not None:
            try:
                return self._ended.get(timeout=max(0.0, self._began + self._hedge_s - time.monotonic()))
            except queue.Empty:
                self._hedge_s = None
                if (left := self._end - time.monotonic()) > 0:
                    self._send(left)
        return self._ended.get()

    def _send(self, left: float, wait_for_ready: bool = False) -> None:
        """Send it over the next channel. While retries are left, an attempt has half of the time that is."""
        timeout = left / 2 if self._retries_left else left
        future = self._client.next_of(self._calls).future(self._request, timeout=timeout, wait_for_ready=wait_for_ready)
        self._open.add(future)
        future.add_done_callback(lambda ended: self._ended.put((ended, time.monotonic())))

    def _send_again(self, error: grpc.RpcError) -> bool:
        """Wait with increasing back-off for the server, then resend the request if retries and time are left."""
        lost = error.code() is grpc.StatusCode.UNAVAILABLE
        if not self._retries_left or not (lost or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED):
            return False
        pause = min(RETRY_PAUSE_S * 2 ** (self._client.retries - self._retries_left), LONGEST_PAUSE_S) if lost else 0.0
        self._retries_left -= 1
        time.sleep(max(0.0, min(pause, self._end - time.monotonic())))
        left = self._end - time.monotonic()
        if left <= 0:
            return False
        self._send(left, wait_for_ready=True)
        return True

    def cancel(self) -> None:
        """Cancel the call; the server is notified."""
        for future in list(self._open):
            future.cancel()


class Pending(_Call):
    """A search in progress."""

    def __init__(
        self, client: Client, request: pb.SearchRequest, calls: Sequence[grpc.UnaryUnaryMultiCallable]
    ) -> None:
        n = len(request.queries)
        name = f"request {request.request_id} ({n} {'query' if n == 1 else 'queries'})"
        super().__init__(client, name, request, calls)

    def result(self) -> list[Neighbours]:
        """Wait for the neighbours of each query. Raises RetrievalError."""
        reply, seconds = self._answered()
        if reply.request_id != self._request.request_id:
            raise self._client.said(self._name, f"the reply is to another request, {reply.request_id!r}")
        if len(reply.results) != len(self._request.queries):
            raise self._client.said(self._name, f"the reply has {len(reply.results)} results")
        try:
            return [_with_network(wire.neighbours(message), seconds) for message in reply.results]
        except ValueError as error:
            raise self._client.said(self._name, f"a garbled reply: {error}") from error


def _with_network(found: Neighbours, seconds: float) -> Neighbours:
    """The neighbours with what the server's stages leave of the round trip: transport and encoding of messages."""
    return replace(found, seconds={**found.seconds, "network": max(0.0, seconds - sum(found.seconds.values()))})


def call_of(channel: grpc.Channel, name: str, reply: type[Message]) -> grpc.UnaryUnaryMultiCallable:
    """A call of the service by its name in ragauge.proto: from its request to a message of the type `reply`."""
    return channel.unary_unary(f"/{wire.SERVICE}/{name}", methodcaller("SerializeToString"), reply.FromString)


def _credentials(ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.ChannelCredentials | None:
    """What a client checks the server by, and shows it; None: no TLS."""
    if (certificate is None) != (key is None):
        raise UserError("--tls-cert and --tls-key: give both or neither")
    if ca is None:
        if certificate:
            raise UserError(f"--tls-cert {certificate}: needs --tls-ca, which verifies the server that it is shown to")
        return None
    pair = read_pair(certificate, key) if certificate and key else (None, None)
    return grpc.ssl_channel_credentials(read_authorities(ca), *pair)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    return grpc.secure_channel(address, credentials, options=OPTIONS)
