"""The client of the retrieval service, whose calls end within their deadline: an answer or a
`RetrievalError`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from operator import methodcaller
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import About, Neighbours, Query
from ragauge.pipelines.service import credentials, wire
from ragauge.pipelines.service.proto import ragauge_pb2 as pb
from ragauge.pipelines.service.settings import check_address

DEADLINE_S = 10.0
REPLY_BYTES = 64 << 20
PINGS = 9
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", REPLY_BYTES),
    ("grpc.per_rpc_retry_buffer_size", 1 << 30),  # requests of any size can be sent again
    ("grpc.enable_http_proxy", 0),  # a proxy set in the environment is meant for web traffic
    ("grpc.use_local_subchannel_pool", 1),  # do not share another client's reconnection back-off
    ("grpc.initial_reconnect_backoff_ms", 50),
    # despite its name: the timeout of one connection attempt
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
# of gRPC's service configuration: wait for the server, send a call again that it did not answer
RETRY_POLICY = {
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
HEALTH = health_pb2.HealthCheckRequest(service=wire.SERVICE)
EXPLANATIONS = {
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


class Client(AbstractContextManager["Client"]):
    """Searches on one server. Thread-safe; as a context manager it closes the connection."""

    def __init__(
        self,
        address: str,
        *,
        deadline_s: float = DEADLINE_S,
        retries: int = 0,
        tls_ca: Path | None = None,
        tls_name: str | None = None,
        token_file: Path | None = None,
    ) -> None:
        """Connect at the first call.

        Args:
            address: host:port.
            deadline_s: seconds that a call may take.
            retries: how often a call is sent again that was not answered; gRPC allows 4.
            tls_ca: CA certificates that verify the server's, PEM; without it there is no TLS.
            tls_name: name on the server's certificate; default: that of the address.
            token_file: the token that the server requires.

        Raises:
            UserError: an invalid address or deadline, or a file that cannot be read.
        """
        check_address(address)
        if not 0 < deadline_s < float("inf"):
            raise UserError(f"retrieval deadline: {deadline_s}; must be seconds above 0")
        self.address = address
        self.deadline_s = deadline_s
        self._metadata: tuple[tuple[str, str], ...] = ()
        if token_file:
            token = credentials.read_token(token_file)
            self._metadata = (("authorization", f"Bearer {token}"),)
        policy = {**RETRY_POLICY, "maxAttempts": 1 + retries}
        config = {"methodConfig": [{"name": [{}], "waitForReady": True, "retryPolicy": policy}]}
        options = [*OPTIONS, ("grpc.service_config", json.dumps(config))] if retries else [*OPTIONS]
        options += [("grpc.ssl_target_name_override", tls_name)] if tls_name else []
        if tls_ca:
            tls = credentials.channel_credentials(tls_ca)
            self._channel = grpc.secure_channel(address, tls, options)
        else:
            self._channel = grpc.insecure_channel(address, options)
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """Return the neighbours of each query; `seconds` has `queue` and `network` too.

        Raises:
            RetrievalError: no answer.
        """
        return self.start(queries).result()

    def start(self, queries: Sequence[Query]) -> PendingSearch:
        """Send a search and return immediately; its deadline starts now."""
        call = method(self._channel, "Search", pb.SearchReply)
        future = call.future(
            wire.search_request(queries), timeout=self.deadline_s, metadata=self._metadata
        )
        return PendingSearch(self, len(queries), future)

    def describe(self) -> About:
        """Return what the server holds.

        Raises:
            RetrievalError: as `search` does.
        """
        reply = self._reply(
            "describe", method(self._channel, "Describe", pb.Description), pb.DescribeRequest()
        )
        return About(**{name: getattr(reply, name) for name in About.__dataclass_fields__})

    def detokenize(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Tokens of the server's database as text, one for each sequence.

        Raises:
            RetrievalError: as `search` does.
        """
        call = method(self._channel, "Detokenize", pb.DetokenizeReply)
        request = pb.DetokenizeRequest(
            sequences=[pb.Tokens(ids=sequence) for sequence in sequences]
        )
        return list(self._reply("detokenize", call, request).texts)

    def wait_until_ready(self, limit_s: float) -> None:
        """Wait for a connection, and an answer that the server is serving.

        Raises:
            RetrievalError: none within `limit_s` seconds, or the server does not serve.
        """
        try:
            answer = self._health.Check(
                HEALTH, timeout=limit_s, wait_for_ready=True, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise self.error("health", error, limit_s) from error
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            raise LostError(f"retrieval server {self.address}, health: it does not serve")

    def round_trip_s(self) -> float:
        """Median seconds of a message there and back without a search.

        Raises:
            RetrievalError: no answer in time.
        """
        seconds = []
        for _ in range(1 + PINGS):
            started = time.perf_counter()
            self._reply("health", self._health.Check, HEALTH)
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds[1:])

    def close(self) -> None:
        """Close the connection; calls in progress end with an error."""
        self._channel.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def error(
        self, request: str, error: grpc.RpcError, deadline_s: float | None = None
    ) -> RetrievalError:
        """Return an error that names this server and a request."""
        request_name = f"retrieval server {self.address}, {request}"
        code = error.code()
        details = error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return LostError(
                f"{request_name}: no answer within {deadline_s or self.deadline_s:g} s ({details})"
            )
        kind = LostError if code is grpc.StatusCode.UNAVAILABLE else RetrievalError
        return kind(f"{request_name}: {EXPLANATIONS.get(code, code.name.lower())}: {details}")

    def _reply(self, name: str, call: grpc.UnaryUnaryMultiCallable, request: Message) -> Any:
        try:
            return call(request, timeout=self.deadline_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self.error(name, error) from error


class PendingSearch:
    """A search that was sent."""

    def __init__(self, client: Client, queries: int, future: grpc.Future) -> None:
        self._client = client
        self._future = future
        self._name = f"search of {queries} {'query' if queries == 1 else 'queries'}"
        started = time.monotonic()
        self._seconds = Future[float]()
        future.add_done_callback(lambda _: self._seconds.set_result(time.monotonic() - started))

    def result(self) -> list[Neighbours]:
        """Wait for the neighbours of each query.

        Raises:
            RetrievalError: the search failed.
        """
        seconds = self._seconds.result()
        try:
            results = self._future.result().results
        except grpc.FutureCancelledError:
            where = f"retrieval server {self._client.address}, {self._name}"
            raise RetrievalError(f"{where}: cancelled") from None
        except grpc.RpcError as error:
            raise self._client.error(self._name, error) from error
        return [wire.neighbours(message, seconds) for message in results]

    def cancel(self) -> None:
        """Cancel the search; the server stops it. No effect on one that has ended."""
        self._future.cancel()


def method(channel: grpc.Channel, name: str, reply: type[Message]) -> grpc.UnaryUnaryMultiCallable:
    """Return a call of the service by its name in ragauge.proto: from its request to a message of
    the type `reply`.
    """
    return channel.unary_unary(
        f"/{wire.SERVICE}/{name}", methodcaller("SerializeToString"), reply.FromString
    )
