"""The retrieval service: a retriever behind gRPC, which checks and bounds every field of a request."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import About, Query, Retriever
from ragauge.pipelines.service import credentials, wire
from ragauge.pipelines.service.proto import ragauge_pb2 as pb
from ragauge.pipelines.service.search_queue import RefusedError, SearchJob, SearchQueue
from ragauge.pipelines.service.settings import ServerSettings

logger = logging.getLogger(__name__)

SPARE_THREADS = 8  # for health, descriptions and refusals, besides those of the requests under way
WAITING_CALLS = 256  # calls that may wait for a thread; gRPC refuses more
OPTIONS = [
    ("grpc.max_send_message_length", -1),  # what is sent is bounded by the chunks of a reply
    # no compression: a megabyte could unpack to a gigabyte
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not load sharing
]

MAX_K = 256
MAX_CONTINUATION = 16
MAX_TOKENS = 4096
MAX_CHARACTERS = 32768  # of a query
MAX_CHUNKS = 16384  # in one reply
MAX_BUDGET_S = 3600.0


class TokenCheck(grpc.ServerInterceptor):
    """Reads the token in a call's metadata, before its message and before it is counted.

    A call without the token ends at once, even if its message never comes.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept_service(self, continuation: Any, details: Any) -> grpc.RpcMethodHandler | None:
        handler = continuation(details)
        if not handler or credentials.carries_token(details.invocation_metadata, self._token):
            return handler
        return grpc.stream_unary_rpc_method_handler(_refuse)  # which does not wait for a message


def _refuse(_: Any, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call does not carry the server's token")


class Server:
    """Serves an index at `address` from `start` to `stop`, or inside a `with` block."""

    def __init__(
        self,
        searcher: Retriever,
        settings: ServerSettings,
        *,
        tls: grpc.ServerCredentials | None = None,
        token: str | None = None,
    ) -> None:
        """Without `tls` nothing is encrypted; without a token, which calls carry, anyone may
        search.

        Raises:
            UserError: the address cannot be listened on.
        """
        self._searcher = searcher
        self._about = searcher.describe()
        self.queue = SearchQueue(searcher, settings.max_concurrent)
        self._max_queries = settings.max_queries
        self._health = health.HealthServicer()
        threads = settings.max_concurrent + SPARE_THREADS
        calls = {
            "Search": _handler(pb.SearchRequest, self._search),
            "Detokenize": _handler(pb.DetokenizeRequest, self._detokenize),
            "Describe": _handler(
                pb.DescribeRequest, lambda *_: pb.Description(**vars(self._about))
            ),
        }
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="retrieval"),
            handlers=[grpc.method_handlers_generic_handler(wire.SERVICE, calls)],
            options=[*OPTIONS, ("grpc.max_receive_message_length", settings.max_message_bytes)],
            maximum_concurrent_rpcs=threads + WAITING_CALLS,
            interceptors=[TokenCheck(token)] if token else [],
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        host = settings.host
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        address = f"{host}:{settings.port}"
        server = self._server
        try:
            port = (
                server.add_secure_port(address, tls) if tls else server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise UserError(
                f"cannot listen on {address}: the port is taken, or no address of this machine"
            ) from error
        self.address = f"{host}:{port}"

    def start(self) -> None:
        self._server.start()
        for name in ("", wire.SERVICE):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float = 30.0) -> bool:
        """Refuse new requests and wait for running ones; False if a search still runs after
        `grace_s`.
        """
        end = time.monotonic() + grace_s
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s)
        return self.queue.close(end - time.monotonic())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _search(self, request: pb.SearchRequest, context: grpc.ServicerContext) -> pb.SearchReply:
        job = SearchJob(_read_queries(request, self._about, self._max_queries))
        answers = self.queue.search(job, context)
        return pb.SearchReply(
            results=[wire.neighbours_message(answer, job.queue_s) for answer in answers]
        )

    def _detokenize(
        self, request: pb.DetokenizeRequest, _: grpc.ServicerContext
    ) -> pb.DetokenizeReply:
        _check_range("sequences", len(request.sequences), self._max_queries, low=1)
        for i, sequence in enumerate(request.sequences):
            _check_tokens(f"sequences[{i}]", sequence.ids, self._about)
        return pb.DetokenizeReply(
            texts=self._searcher.detokenize([list(sequence.ids) for sequence in request.sequences])
        )


def _handler(
    kind: type[Message], answer: Callable[[Any, grpc.ServicerContext], Message]
) -> grpc.RpcMethodHandler:
    """From a request's bytes to a reply or a status; gRPC's own parser reports bad bytes as an
    internal error.
    """

    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return answer(kind.FromString(data), context).SerializeToString()
        except RefusedError as error:
            code, message = error.args
        except DecodeError:
            code = grpc.StatusCode.INVALID_ARGUMENT
            message = f"the message of {len(data)} bytes is not a {kind.DESCRIPTOR.full_name}"
        except UserError as error:
            code = grpc.StatusCode.INVALID_ARGUMENT
            message = str(error)
        except Exception as error:  # a defect, whose inside only the log shows
            logger.error("a request failed", exc_info=error)
            code = grpc.StatusCode.INTERNAL
            message = f"it failed ({type(error).__name__}); see the server's log"
        context.abort(code, message)
        return b""

    return grpc.unary_unary_rpc_method_handler(handle)


def _read_queries(request: pb.SearchRequest, about: About, max_queries: int) -> list[Query]:
    """Return the queries of a request.

    Raises:
        UserError: naming the first field that is out of bounds, and its range.
    """
    _check_range("queries", len(request.queries), max_queries, low=1, unit="queries")
    queries = [
        _read_query(f"queries[{i}]", message, about) for i, message in enumerate(request.queries)
    ]
    chunks = sum(query.k * (1 + query.continuation) for query in queries)
    _check_range(
        "queries", chunks, MAX_CHUNKS, unit="chunks (k times 1 + continuation, over all queries)"
    )
    return queries


def _read_query(name: str, message: pb.Query, about: About) -> Query:
    try:
        query = wire.query(message)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    _check_range(f"{name}.text", len(query.text or ""), MAX_CHARACTERS, unit="characters")
    _check_tokens(f"{name}.tokens", query.tokens or (), about)
    _check_range(f"{name}.k", query.k, MAX_K, low=1)
    _check_range(f"{name}.continuation", query.continuation, MAX_CONTINUATION)
    _check_range(f"{name}.nprobe", query.nprobe or 1, about.max_nprobe or 1, low=1)
    _check_range(f"{name}.budget_s", query.budget_s or 0.0, MAX_BUDGET_S)
    return query


def _check_tokens(name: str, ids: Sequence[int], about: About) -> None:
    _check_range(name, len(ids), MAX_TOKENS, unit="tokens")
    for i, token in enumerate(ids):
        _check_range(f"{name}[{i}]", token, about.vocabulary - 1)


def _check_range(name: str, value: float, high: float, *, low: float = 0, unit: str = "") -> None:
    if not low <= value <= high:
        raise UserError(f"{name}: {f'{value} {unit}'.strip()}; must be from {low} to {high}")
