"""The retrieval service: a searcher behind gRPC, from start to stop.

The service returns exactly its searcher's answers. It checks and bounds every field before it searches (`requests`),
and searches requests that wait together in one call (`search_queue`). On SIGTERM it finishes what runs and refuses
what is new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ragauge.errors import UserError
from ragauge.retrieval.service import credentials, wire
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.requests import check_detokenize, check_search
from ragauge.retrieval.service.search_queue import JointSearcher, RefusedError, SearchJob, SearchQueue
from ragauge.retrieval.service.settings import RequestLimits
from ragauge.retrieval.service.wire import About

if TYPE_CHECKING:
    from ragauge.retrieval.service.metrics import Metrics

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
GRACE_S = 30.0  # for requests under way when the server stops
SPARE_THREADS = 8  # for health, descriptions and refusals, besides those of the requests under way
WATCH_S = 0.5
WAITING_CALLS = 256  # calls that may wait for a thread; gRPC refuses more

Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True)
class LoadedIndex:
    """What answers requests; replaced as a whole when an index is reloaded."""

    searcher: JointSearcher
    about: About
    detokenize: Callable[[list[list[int]]], list[str]] | None = None  # by the database's tokenizer


class Server:
    """Serves an index at `address` from `start` to `stop`.

    with Server(LoadedIndex(retriever, about)) as server, Client(server.address) as client:
        client.search(queries)
    """

    def __init__(
        self,
        loaded: LoadedIndex,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        tls: grpc.ServerCredentials | None = None,
        token: str | None = None,
        limits: RequestLimits = RequestLimits(),  # noqa: B008 (frozen)
        workers: int = 1,
        window_s: float = 0.0,
        hang_s: float = 60.0,
    ) -> None:
        """
        Args:
            host: address to listen on.
            port: 0 lets the system choose.
            tls: see `credentials.server_credentials`; without it, nothing is encrypted.
            token: what every call must carry; None: anyone who reaches the address may search.
            workers: searches at the same time.
            window_s: how long a request waits for others, to be searched in one call with them.
            hang_s: a search that takes longer turns health to NOT_SERVING until it ends.

        Raises:
            UserError: the address cannot be listened on.
        """
        self.loaded = loaded  # a request keeps the one that it began with
        self.queue = SearchQueue(limits.concurrent, workers, window_s)
        self.metrics: Metrics | None = None
        self._limits, self._token, self._hang_s = limits, token, hang_s
        self._decoding, self._stopped = threading.Lock(), threading.Event()
        self._health = health.HealthServicer()
        self._server = grpc.server(
            ThreadPoolExecutor(limits.concurrent + SPARE_THREADS, thread_name_prefix="retrieval"),
            handlers=[self._handlers()],
            options=_options(limits),
            maximum_concurrent_rpcs=limits.concurrent + SPARE_THREADS + WAITING_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        self.address = f"{host}:{self._listen(f'{host}:{port}', tls)}"

    def _listen(self, address: str, tls: grpc.ServerCredentials | None) -> int:
        try:
            return self._server.add_secure_port(address, tls) if tls else self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UserError(f"cannot listen on {address}: the port is taken, or no address of this machine") from error

    def start(self) -> None:
        """Start serving; health becomes SERVING."""
        self._server.start()
        self._set_health(True)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Refuse new requests and wait for running ones; False if a search still runs after `grace_s`."""
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s)
        self.queue.close()
        return self.queue.running == 0

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _set_health(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", wire.SERVICE):
            self._health.set(name, status)

    def _watch(self) -> None:
        """Set health to NOT_SERVING while a search hangs."""
        hung = False
        while not self._stopped.wait(min(WATCH_S, self._hang_s / 4)):
            if (self.queue.longest_s() > self._hang_s) != hung:
                hung = not hung
                message = "a search has run for more than %g s: not serving" if hung else "no search over %g s any more"
                logger.warning(message, self._hang_s)
                self._set_health(not hung)

    # --- calls ---

    def _handlers(self) -> grpc.GenericRpcHandler:
        calls = {
            "Search": self._handler("search", pb.SearchRequest, self._search),
            "Detokenize": self._handler("detokenize", pb.DetokenizeRequest, self._detokenize),
            "Describe": self._handler("describe", pb.DescribeRequest, self._describe),
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, calls)

    def _handler(
        self, call: str, kind: type[Request], answer: Callable[[Request, grpc.ServicerContext], Message]
    ) -> grpc.RpcMethodHandler:
        """From a request's bytes to a reply or a status; gRPC's own parser reports bad bytes as an internal error."""

        def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
            started, reply, refusal = time.perf_counter(), b"", None
            try:
                if self._token and not credentials.carries_token(context, self._token):
                    raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "the call does not carry the server's token")
                reply = answer(kind.FromString(data), context).SerializeToString()
            except Exception as error:
                refusal = _refusal(error, f"the message of {len(data)} bytes is not a {kind.DESCRIPTOR.full_name}")
            if self.metrics:
                code = refusal.code.name if refusal else "OK"
                self.metrics.count_request(call, code, time.perf_counter() - started)
            if refusal:
                context.abort(refusal.code, str(refusal))
            return reply

        return grpc.unary_unary_rpc_method_handler(handle)

    def _search(self, request: pb.SearchRequest, context: grpc.ServicerContext) -> pb.SearchReply:
        loaded = self.loaded
        check_search(request, loaded.about, self._limits)
        job = SearchJob(loaded.searcher, [wire.query(message) for message in request.queries])
        found = self.queue.search(job, context)
        if self.metrics:
            self.metrics.count_search(len(found), job.joined, {"queue": job.queue_s, **found[0].seconds})
        return pb.SearchReply(results=[wire.neighbours_message(one, job.queue_s) for one in found])

    def _detokenize(self, request: pb.DetokenizeRequest, _: grpc.ServicerContext) -> pb.DetokenizeReply:
        loaded = self.loaded
        if loaded.detokenize is None:
            raise RefusedError(grpc.StatusCode.UNIMPLEMENTED, "the server has no tokenizer")
        check_detokenize(request, loaded.about, self._limits)
        with self._decoding:
            return pb.DetokenizeReply(texts=loaded.detokenize([list(one.ids) for one in request.sequences]))

    def _describe(self, _: pb.DescribeRequest, __: grpc.ServicerContext) -> pb.Description:
        return pb.Description(**asdict(self.loaded.about))


def _refusal(error: Exception, undecodable: str) -> RefusedError:
    """The status of a request that failed; a defect is logged and its inside not shown."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, (UserError, DecodeError)):
        message = undecodable if isinstance(error, DecodeError) else str(error)
        return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)
    logger.error("a request failed", exc_info=error)
    return RefusedError(grpc.StatusCode.INTERNAL, f"it failed ({type(error).__name__}); see the server's log")


def _options(limits: RequestLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),  # what is sent is bounded by `chunks`
        ("grpc.compression_enabled_algorithms_bitset", 1),  # no compression: a megabyte could unpack to a gigabyte
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not load sharing
    ]
