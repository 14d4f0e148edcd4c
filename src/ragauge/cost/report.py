"""What one method costs on one prompt: the numbers behind `ragauge cost`, from a decoder of shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragauge.cost.cycles import compute_cycles, dtype_bytes, kv_bytes, with_prefix_cached, with_queries_kept
from ragauge.cost.flop import flop, parameters
from ragauge.cost.trace import Call, Trace, online

Refold = Callable[[Trace, Any, Any, Any], Trace]


def cost_report(
    name: str,
    method: Any,
    naive: Any,
    lm: Any,
    prompt: Any,
    *,
    limits: Any,
    accounting: str = "critical_path",
    dtype: str = "bfloat16",
) -> dict[str, Any]:
    """Costs of `method` (registered as `name`) on a prompt, beside those of the plain prompt.

    Args:
        method, naive: `ragauge.methods.Method`s.
        lm: a `ragauge.lm.ShapeLM` (or a decoder with weights: the trace is the same).
        limits: `ragauge.lm.Limits`; `max_new_tokens=1` is the cost of the first token.
        accounting: one of `cycles.ACCOUNTINGS`.
        dtype: of the cached keys and values.

    Returns: `compute_cycles` and `theoretical_speedup` under the accounting; `flop` of everything online and
        `offline_flop` of what was prepared before; `kv_bytes`, the most keys and values held at one time, and
        `offline_kv_bytes`, those kept from one question to the next.

    Raises:
        UserError: unknown accounting or dtype; a prompt longer than the decoder's context.
    """
    trace, peak_bytes = _traced(name, method, lm, prompt, limits, accounting)
    plain, _ = _traced("naive", naive, lm, prompt, limits, accounting)
    cycles = compute_cycles(trace, lm.shape, accounting)
    prepared = [call for call in trace if call.offline]
    return {
        "method": name,
        "accounting": accounting,
        "compute_cycles": cycles,
        "theoretical_speedup": compute_cycles(plain, lm.shape, accounting) / cycles,
        "flop": flop(online(trace), lm.shape),
        "offline_flop": flop(prepared, lm.shape),
        "kv_bytes": peak_bytes * dtype_bytes(dtype) // dtype_bytes(lm.dtype),
        "offline_kv_bytes": kv_bytes(lm.shape, sum(_decoded(call) for call in prepared), dtype),
        "dtype": dtype,
        "parameters": parameters(lm.shape),
        "tokens": prompt.token_counts(),
        "trace": [call.to_json() for call in trace],
    }


def _traced(name: str, method: Any, lm: Any, prompt: Any, limits: Any, accounting: str) -> tuple[Trace, int]:
    """The method's trace, offline calls included, and the most bytes of keys and values that it held."""
    with lm.tracing() as trace:
        answer = method.answer(lm, method.prepare(lm, prompt), prompt, limits)
    refold = PUBLISHED_REFOLDS.get(name) if accounting == "published" else None
    return (refold(trace, method, prompt, answer) if refold else trace), lm.peak_cache_bytes


def _first_document_cached(trace: Trace, method: Any, prompt: Any, answer: Any) -> Trace:
    """The paper takes the preamble and the first document of a ranker's prompt from the cache."""
    if not answer.kept:
        return trace
    return with_prefix_cached(trace, len(prompt.preamble) + len(prompt.documents[answer.kept[0]]))


def _kept_queries_counted(trace: Trace, method: Any, prompt: Any, answer: Any) -> Trace:
    """The paper counts one query a kept path where paths are pruned, and one query where they are not."""
    return with_queries_kept(trace, method.top_k) if method.prunes else trace


PUBLISHED_REFOLDS: dict[str, Refold] = {
    "bm25": _first_document_cached,
    "tfidf": _first_document_cached,
    "dense": _first_document_cached,
    "superposition": _kept_queries_counted,
}


def _decoded(call: Call) -> int:
    """Tokens that a call left in the decoder's cache; an encoder's leave none."""
    return 0 if call.macs is not None else sum(call.lengths) * call.steps
