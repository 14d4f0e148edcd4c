"""Compute cycles: folds of a trace to one count of multiply-accumulates, each under a named accounting.

Superposition Prompting (Merth et al., 2024) reports the multiply-accumulates on the critical path: what was prepared
before the query counts nothing, and paths that could run at the same time count as the longest of them.

| accounting | offline calls | rows of a parallel call | logits | decoding |
| --- | --- | --- | --- | --- |
| `critical_path` | nothing | the longest row | where computed | counted |
| `total` | counted | summed | where computed | counted |
| `published` | nothing | the mean row | of every new token | not counted |

What else the paper assumes is said by re-folds, which turn a trace into the trace that would have been recorded:
`uncached` and `sequential` (Table 6), `with_queries_kept` (Table 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ragauge.cost.flop import row_macs, trace_macs
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace, online
from ragauge.errors import unknown

Accounting = Callable[[Iterable[Call], Shape], int]

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1}


def critical_path(trace: Iterable[Call], shape: Shape) -> int:
    """MACs that a user waits for: online calls one after another, a parallel call as its longest row by MACs."""
    return sum(_waited(call, shape, _longest) for call in online(trace))


def total(trace: Iterable[Call], shape: Shape) -> int:
    """MACs of everything, offline calls and all parallel rows included: nothing hidden."""
    return trace_macs(trace, shape)


def published(trace: Iterable[Call], shape: Shape) -> int:
    """What the paper's columns hold, as far as its numbers show: prompt processing alone, logits of every token.

    Its text speaks of the longest path; its ablation without caching (Table 6) holds 1.46e12 for MPT-7B, which is a
    document of mean length (142.6 tokens), where the longest of twenty (170 tokens) would make 1.65e12.
    """
    return sum(_waited(call, shape, _mean) for call in online(with_all_logits(without_decoding(trace))))


ACCOUNTINGS: dict[str, Accounting] = {"critical_path": critical_path, "total": total, "published": published}


def compute_cycles(trace: Iterable[Call], shape: Shape, accounting: str = "critical_path") -> int:
    """MACs of a trace under one of ACCOUNTINGS; raises UserError with the choices on an unknown name."""
    if accounting not in ACCOUNTINGS:
        raise unknown("accounting", accounting, ACCOUNTINGS)
    return ACCOUNTINGS[accounting](trace, shape)


def uncached(trace: Iterable[Call]) -> Trace:
    """The trace without path caching: what was computed offline is computed while the user waits."""
    return [replace(call, offline=False) for call in trace]


def sequential(trace: Iterable[Call]) -> Trace:
    """The trace without path parallelization: independent rows run one after another."""
    return [replace(call, parallel=False) for call in trace]


def without_decoding(trace: Iterable[Call]) -> Trace:
    """The trace up to the first token."""
    return [call for call in trace if call.stage != "decode"]


def with_all_logits(trace: Iterable[Call]) -> Trace:
    """The trace of a decoder that multiplies every new token with the output matrix, needed or not."""
    return [call if call.macs is not None else replace(call, logits=call.lengths) for call in trace]


def with_queries_kept(trace: Iterable[Call], kept: int) -> Trace:
    """The trace with the query copies of `kept` paths one after another (the longest), as Table 5 counts them.

    The paper's columns grow by one query a kept path; without pruning (Table 6) the queries count once, in parallel.
    """
    return [_repeat_longest(call, kept) if call.stage == "query" else call for call in trace]


def kv_bytes(shape: Shape, tokens: int, dtype: object) -> int:
    """Bytes of the cached keys and values of `tokens` tokens; `dtype` is a torch dtype or its name."""
    return 2 * sum(shape.kv_heads) * shape.head_dim * tokens * dtype_bytes(dtype)


def dtype_bytes(dtype: object) -> int:
    """Bytes of one element of a torch dtype, given as such or by name ("bfloat16"); raises UserError on others."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise unknown("dtype", name, DTYPE_BYTES)
    return DTYPE_BYTES[name]


def _waited(call: Call, shape: Shape, of_rows: Callable[[tuple[int, ...]], int]) -> int:
    rows = row_macs(call, shape)
    return of_rows(rows) if call.parallel else sum(rows)


def _longest(rows: tuple[int, ...]) -> int:
    return max(rows, default=0)


def _mean(rows: tuple[int, ...]) -> int:
    return round(sum(rows) / len(rows)) if rows else 0


def _repeat_longest(call: Call, count: int) -> Call:
    row = max(range(len(call.lengths)), key=lambda i: (call.lengths[i], call.past[i]))
    logits = (call.logits[row],) * count if call.logits else ()
    return replace(
        call, lengths=(call.lengths[row],) * count, past=(call.past[row],) * count, logits=logits, parallel=False
    )
