"""The calls of the retrieval service: a request's bytes in, the reply's bytes or a status out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Searcher
from ragauge.retrieval.service import wire
from ragauge.retrieval.service.admission import Admission, RefusedError
from ragauge.retrieval.service.finished import Finished, Observer
from ragauge.retrieval.service.lanes import LaneJob, work_of
from ragauge.retrieval.service.outbox import Outbox
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.quotas import Quotas, client_of
from ragauge.retrieval.service.requests import check_detokenize, check_search, check_work, parsed
from ragauge.retrieval.service.wire import About, RequestLimits

logger = logging.getLogger(__name__)

Detokenize = Callable[[list[list[int]]], list[str]]


@dataclass(frozen=True)
class LoadedIndex:
    """What answers: exchanged as a whole when an index is reloaded."""

    searcher: Searcher
    about: About
    detokenize: Detokenize | None = None


Answer = Callable[[bytes, grpc.ServicerContext, Finished], bytes]


class Calls:
    """The handlers of the calls. Messages are parsed here, since gRPC logs a malformed one as an internal error."""

    def __init__(
        self,
        served: LoadedIndex,
        limits: RequestLimits,
        admission: Admission,
        quotas: Quotas,
        observers: Sequence[Observer],
    ) -> None:
        self.served = served  # a request keeps the one that it began with
        self.outbox = Outbox()
        self._limits, self._admission, self._quotas = limits, admission, quotas
        self._observers = observers  # its owner may add more before the start
        self._decoding = threading.Lock()

    def handlers(self) -> grpc.GenericRpcHandler:
        """All calls, from bytes to bytes."""
        calls = {"Search": self.search, "Describe": self.describe}
        if self.served.detokenize is not None:
            calls["Detokenize"] = self.detokenize
        return grpc.method_handlers_generic_handler(
            wire.SERVICE, {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        )

    def describe(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """Any message is valid, since the request has no fields."""
        return wire.description(self.served.about, self._limits).SerializeToString()

    def search(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """The neighbours of a request's queries."""
        return self._observed("search", self._search, data, context)

    def detokenize(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """The texts of a request's token sequences."""
        return self._observed("detokenize", self._texts, data, context)

    def _observed(self, call: str, answer: Answer, data: bytes, context: grpc.ServicerContext) -> bytes:
        """The answer, or an abort with the status that says why there is none; either is told to the observers."""
        started = time.perf_counter()
        request = Finished(call, client_of(context.peer()))
        reply, refusal = self._answered(answer, data, context, request)
        request.code = refusal.code.name if refusal else "OK"
        request.bytes = len(reply)
        request.seconds["total"] = time.perf_counter() - started
        for observer in self._observers:
            observer(request)
        if refusal:
            _abort(context, refusal.code, refusal)
        return reply

    def _answered(
        self, answer: Answer, data: bytes, context: grpc.ServicerContext, request: Finished
    ) -> tuple[bytes, RefusedError | None]:
        try:
            with self._admission.admitted():
                return self.outbox.sent(answer(data, context, request), context), None
        except RefusedError as refusal:
            return b"", refusal
        except UserError as error:
            return b"", RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:
            logger.exception("a request failed")
            what = f"it failed ({type(error).__name__}); see the server's log"
            return b"", RefusedError(grpc.StatusCode.INTERNAL, what)

    def _texts(self, data: bytes, context: grpc.ServicerContext, told: Finished) -> bytes:
        served = self.served
        request = parsed(pb.DetokenizeRequest, data)
        check_detokenize(request, served.about, self._limits)
        self._quotas.take(told.client, 1, len(request.sequences), 0)
        assert served.detokenize is not None
        sequences = [list(sequence.ids) for sequence in request.sequences]
        with self._decoding:
            texts = served.detokenize(sequences)
        return pb.DetokenizeReply(texts=texts).SerializeToString()

    def _search(self, data: bytes, context: grpc.ServicerContext, told: Finished) -> bytes:
        served = self.served
        request = parsed(pb.SearchRequest, data)
        check_search(request, served.about, self._limits)
        queries = [wire.query(message) for message in request.queries]
        told.request_id, told.queries, told.lists = request.request_id, len(queries), work_of(served.searcher, queries)
        check_work(told.lists, self._limits)
        self._quotas.take(told.client, 1, len(queries), told.lists)
        job = LaneJob(served.searcher, queries)
        results = self._admission.searched(job, told.lists, context)
        told.joined, told.seconds = job.joined, {"queue": job.queue_s, **results[0].seconds}
        return wire.reply(request.request_id, results, job.queue_s).SerializeToString()


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, message: object) -> NoReturn:
    context.abort(code, str(message))
    raise AssertionError("abort returned")
