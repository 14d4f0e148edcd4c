"""Checks of requests: every field is checked before anything is searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import grpc

from ragauge.retrieval.service.proto import ragauge_pb2 as pb
from ragauge.retrieval.service.search_queue import RefusedError
from ragauge.retrieval.service.settings import RequestLimits
from ragauge.retrieval.service.wire import About

SHOWN = 60  # characters of a refused value in a message
MAX_BUDGET_S = 3600.0


def check_search(request: pb.SearchRequest, about: About, limits: RequestLimits) -> None:
    """Raise RefusedError naming the first field that is out of bounds, its value, and what is allowed."""
    _check_range("queries", len(request.queries), 1, limits.queries, "queries")
    for i, query in enumerate(request.queries):
        _check_query(f"queries[{i}]", query, about, limits)
    chunks = sum(query.k * (1 + query.continuation) for query in request.queries)
    _check_range("queries", chunks, 1, limits.chunks, "chunks (k times 1 + continuation, over all queries)")


def check_detokenize(request: pb.DetokenizeRequest, about: About, limits: RequestLimits) -> None:
    """Raise RefusedError as `check_search` does."""
    _check_range("sequences", len(request.sequences), 1, limits.queries)
    for i, sequence in enumerate(request.sequences):
        _check_tokens(f"sequences[{i}]", sequence.ids, about, limits)


def _check_query(place: str, query: pb.Query, about: About, limits: RequestLimits) -> None:
    content = query.WhichOneof("content")
    if content is None:
        _refuse(place, "neither tokens nor text", "one of the two")
    if content == "text":
        _check_range(f"{place}.text", len(query.text), 1, limits.characters, "characters")
        if not query.text.strip():
            _refuse(f"{place}.text", repr(query.text[:SHOWN]), "text that is not only white space")
    else:
        _check_tokens(f"{place}.tokens", query.tokens.ids, about, limits)
    _check_range(f"{place}.k", query.k, 1, limits.k)
    _check_range(f"{place}.continuation", query.continuation, 0, limits.continuation)
    _check_nprobe(place, query, about)


def _check_tokens(place: str, ids: Sequence[int], about: About, limits: RequestLimits) -> None:
    _check_range(place, len(ids), 1, limits.tokens, "tokens")
    for i, token in enumerate(ids):
        _check_range(f"{place}[{i}]", token, 0, about.vocabulary - 1)


def _check_nprobe(place: str, query: pb.Query, about: About) -> None:
    """Refuse an nprobe or a budget out of its range, and both together."""
    if query.HasField("nprobe") and query.HasField("budget_s"):
        _refuse(place, f"nprobe {query.nprobe} and budget_s {query.budget_s}", "at most one of the two")
    if query.HasField("nprobe"):
        _check_range(f"{place}.nprobe", query.nprobe, 1, about.max_nprobe or 1)
    if query.HasField("budget_s") and not (math.isfinite(query.budget_s) and 0 < query.budget_s <= MAX_BUDGET_S):
        _refuse(f"{place}.budget_s", query.budget_s, f"seconds above 0, to {MAX_BUDGET_S:g}")


def _check_range(place: str, value: int, low: int, high: int, unit: str = "") -> None:
    if not low <= value <= high:
        _refuse(place, f"{value} {unit}".strip(), f"from {low} to {high}")


def _refuse(place: str, value: object, allowed: str) -> NoReturn:
    raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{place}: {value}; must be {allowed}")
