"""Compute cycles: folds of a trace to one count of multiply-accumulates, each under a named
accounting.

docs/cost-accounting.md states the accountings; `published` is the one rule under which nearly all
of the 132 rows of Superposition Prompting (Merth et al., 2024) agree.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ragauge.cost.flop import Layers, attention_macs, row_macs, trace_macs
from ragauge.cost.hardware import precision
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace, online
from ragauge.errors import unknown

# how often the paper counts attention to an earlier call's tokens; others: 1
CACHED_ATTENTION = {"bloom": 2, "mpt": 0}
# Table 5, bloomz-3b at k=1: Contriever's 1.15e11 less BM25's 9.92e10
CONTRIEVER_MACS = 15_800_000_000
SINGLE_QUERY_COUNTS = ("musique",)  # token counts of Table 2, which counts one query a round

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int8": 1,
}


def critical_path(trace: Iterable[Call], shape: Shape) -> int:
    """MACs that a user waits for: online calls one after another, a parallel call as its longest
    row by MACs.
    """
    rows = ((call, row_macs(call, shape)) for call in online(trace))
    return sum(max(macs, default=0) if call.parallel else sum(macs) for call, macs in rows)


def published(trace: Iterable[Call], shape: Shape) -> int:
    """MACs as the paper's columns count them, as far as its numbers show."""
    rows = (
        (call, _published_rows(call, shape))
        for call in online(with_all_logits(without_decoding(trace), shape))
    )
    return sum(
        round(sum(macs) / (len(macs) or 1)) if call.parallel else sum(macs) for call, macs in rows
    )


ACCOUNTINGS = {"critical_path": critical_path, "total": trace_macs, "published": published}


def compute_cycles(trace: Iterable[Call], shape: Shape, accounting: str = "critical_path") -> int:
    """MACs of a trace under one of ACCOUNTINGS.

    Raises:
        UserError: an unknown name, with the choices.
    """
    if accounting not in ACCOUNTINGS:
        raise unknown("accounting", accounting, ACCOUNTINGS)
    return ACCOUNTINGS[accounting](trace, shape)


def uncached(trace: Iterable[Call]) -> Trace:
    """The trace without path caching: what was computed offline is computed while the user waits,
    but for the embeddings of an index.
    """
    return [replace(call, offline=call.is_index) for call in trace]


def sequential(trace: Iterable[Call]) -> Trace:
    """The trace without path parallelization: independent rows run one after another."""
    return [replace(call, parallel=False) for call in trace]


def without_decoding(trace: Iterable[Call]) -> Trace:
    """The trace up to the first token."""
    return [call for call in trace if call.stage != "decode"]


def with_all_logits(trace: Iterable[Call], shape: Shape) -> Trace:
    """The trace of a decoder that multiplies every new token that reaches the last layer with the
    output matrix.
    """

    def has_logits(call: Call) -> bool:
        return call.macs is None and (call.layers is None or call.layers[1] == shape.layers)

    return [replace(call, logits=call.lengths) if has_logits(call) else call for call in trace]


def with_sequential_queries(trace: Iterable[Call], paths: int) -> Trace:
    """The trace with the queries of so many paths one after another (each the longest), as Table 5
    counts them. The paper's columns grow by one query for each path that is left; without pruning
    (Table 6) the queries count once.
    """
    calls = list(trace)
    for index, call in enumerate(calls):
        if call.stage == "query":
            sizes = list(zip(call.lengths, call.past, strict=True))
            row = sizes.index(max(sizes))
            repeated: dict[str, Any] = {
                name: getattr(call, name)[row : row + 1] * paths  # () stays ()
                for name in ("lengths", "past", "logits", "again")
            }
            calls[index] = replace(call, **repeated, parallel=False)
    return calls


def kv_bytes(shape: Shape, tokens: int, dtype: object, layers: Layers = None) -> int:
    """Bytes of the cached keys and values of `tokens` tokens."""
    vector = shape.head_dim * dtype_bytes(precision(dtype).dtype)
    return 2 * sum(shape.kv_heads[slice(*layers or (None,))]) * vector * tokens


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a torch dtype ("bfloat16").

    Raises:
        UserError: an unknown dtype, with the choices.
    """
    if dtype not in DTYPE_BYTES:
        raise unknown("dtype", dtype, DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


def _published_rows(call: Call, shape: Shape) -> tuple[int, ...]:
    """MACs of each row, those of attention to an earlier call's tokens counted as often as the
    paper counts them.
    """
    rows = row_macs(call, shape)
    more = CACHED_ATTENTION.get(shape.family, 1) - 1
    if call.macs is not None or not more:
        return rows
    cached = (
        attention_macs(shape, n, p, layers=call.layers)
        - attention_macs(shape, n, 0, layers=call.layers)
        for n, p in zip(call.lengths, call.past, strict=True)
    )
    return tuple(row + more * part for row, part in zip(rows, cached, strict=True))
