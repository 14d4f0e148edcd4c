"""The calls of the retrieval service: a request's bytes in, the reply's bytes or a status out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NoReturn

import grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Searcher
from ragauge.retrieval.service import wire
from ragauge.retrieval.service.admission import Admission, RefusedError
from ragauge.retrieval.service.lanes import Job, work_of
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.quotas import Quotas, client_of
from ragauge.retrieval.service.requests import check_detokenize, check_search, check_work, parsed
from ragauge.retrieval.service.wire import About, Limits

logger = logging.getLogger(__name__)

Detokenize = Callable[[list[list[int]]], list[str]]


class Calls:
    """The handlers of the calls. Messages are parsed here, since gRPC logs a malformed one as an internal error."""

    def __init__(
        self,
        searcher: Searcher,
        about: About,
        limits: Limits,
        admission: Admission,
        detokenize: Detokenize | None,
        quotas: Quotas,
    ) -> None:
        self._searcher, self._about, self._limits = searcher, about, limits
        self._admission, self._detokenize, self._quotas = admission, detokenize, quotas
        self._decoding = threading.Lock()

    def handlers(self) -> grpc.GenericRpcHandler:
        """All calls, from bytes to bytes."""
        calls = {"Search": self.search, "Describe": self.describe}
        if self._detokenize is not None:
            calls["Detokenize"] = self.detokenize
        return grpc.method_handlers_generic_handler(
            wire.SERVICE, {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        )

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
            with self._admission.admitted():
                return answer(data, context)
        except RefusedError as refusal:
            _abort(context, refusal.code, refusal)
        except UserError as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        except Exception as error:
            logger.exception("a request failed")
            _abort(context, grpc.StatusCode.INTERNAL, f"it failed ({type(error).__name__}); see the server's log")

    def _texts(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = parsed(pb.DetokenizeRequest, data)
        check_detokenize(request, self._about, self._limits)
        self._quotas.take(client_of(context.peer()), 1, len(request.sequences), 0)
        assert self._detokenize is not None
        sequences = [list(sequence.ids) for sequence in request.sequences]
        with self._decoding:
            texts = self._detokenize(sequences)
        return pb.DetokenizeReply(texts=texts).SerializeToString()

    def _search(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = parsed(pb.SearchRequest, data)
        check_search(request, self._about, self._limits)
        queries = [wire.query(message) for message in request.queries]
        work = work_of(self._searcher, queries)
        check_work(work, self._limits)
        self._quotas.take(client_of(context.peer()), 1, len(queries), work)
        job = Job(self._searcher, queries)
        results = self._admission.searched(job, work, context)
        return wire.reply(request.request_id, results, job.queue_s).SerializeToString()


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, message: object) -> NoReturn:
    context.abort(code, str(message))
    raise AssertionError("abort returned")
