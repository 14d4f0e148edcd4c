"""Checks of requests: every field is checked before anything is searched."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from ragauge.errors import UserError
from ragauge.retrieval.retriever import About, Query
from ragauge.retrieval.service import wire
from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.search_queue import RefusedError

MAX_K, MAX_CONTINUATION = 256, 16
MAX_TOKENS, MAX_CHARACTERS = 4096, 32768  # of a query
MAX_CHUNKS = 16384  # in one reply
MAX_BUDGET_S = 3600.0


def read_queries(request: pb.SearchRequest, about: About, max_queries: int) -> list[Query]:
    """The queries of a request. Raises RefusedError naming the first field that is out of bounds, and its range."""
    _check_range("queries", len(request.queries), max_queries, low=1, unit="queries")
    queries = [_read_query(f"queries[{i}]", message, about) for i, message in enumerate(request.queries)]
    chunks = sum(query.k * (1 + query.continuation) for query in queries)
    _check_range("queries", chunks, MAX_CHUNKS, unit="chunks (k times 1 + continuation, over all queries)")
    return queries


def read_sequences(request: pb.DetokenizeRequest, about: About, max_sequences: int) -> list[list[int]]:
    """The token sequences of a request. Raises RefusedError as `read_queries` does."""
    _check_range("sequences", len(request.sequences), max_sequences, low=1)
    for i, sequence in enumerate(request.sequences):
        _check_tokens(f"sequences[{i}]", sequence.ids, about)
    return [list(sequence.ids) for sequence in request.sequences]


def _read_query(place: str, message: pb.Query, about: About) -> Query:
    try:
        query = wire.query(message)
    except UserError as error:
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{place}: {error}") from None
    _check_range(f"{place}.text", len(query.text or ""), MAX_CHARACTERS, unit="characters")
    _check_tokens(f"{place}.tokens", query.tokens or (), about)
    _check_range(f"{place}.k", query.k, MAX_K, low=1)
    _check_range(f"{place}.continuation", query.continuation, MAX_CONTINUATION)
    _check_range(f"{place}.nprobe", query.nprobe or 1, about.max_nprobe or 1, low=1)
    _check_range(f"{place}.budget_s", query.budget_s or 0.0, MAX_BUDGET_S)
    return query


def _check_tokens(place: str, ids: Sequence[int], about: About) -> None:
    _check_range(place, len(ids), MAX_TOKENS, unit="tokens")
    for i, token in enumerate(ids):
        _check_range(f"{place}[{i}]", token, about.vocabulary - 1)


def _check_range(place: str, value: float, high: float, *, low: float = 0, unit: str = "") -> None:
    if not low <= value <= high:
        message = f"{place}: {f'{value} {unit}'.strip()}; must be from {low} to {high}"
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)
