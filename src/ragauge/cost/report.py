"""The costs of one method on one prompt, from a decoder without weights: the numbers of `ragauge cost`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from ragauge.cost.cycles import SINGLE_QUERY_COUNTS, compute_cycles, kv_bytes, with_sequential_queries
from ragauge.cost.flop import flop, parameters
from ragauge.cost.roofline import model_bytes
from ragauge.cost.trace import Trace, online

PLAIN = ("naive", "attention_sort", "closed_book", "oracle")  # methods that read one plain prompt, not segments


def cost_report(
    name: str,
    method: Any,
    naive: Any,
    engine: Any,
    prompt: Any,
    *,
    limits: Any,
    accounting: str = "critical_path",
    counts: str = "",
) -> dict[str, Any]:
    """Compute the costs of `method`, registered as `name`, on a prompt, and its speedup over the plain prompt.

    Args:
        method, naive: `ragauge.methods.Method`s.
        engine: a `ragauge.engines.ShapeLM`, or a decoder with weights, whose trace is the same.
        limits: `ragauge.engines.Limits`; `max_new_tokens=1` is the cost of the first token.
        accounting: one of `cycles.ACCOUNTINGS`.
        counts: name of the prompt's token counts, on which depends how the paper counts queries (`cycles`, rule 4).

    Returns: `compute_cycles` and `theoretical_speedup` under the accounting; `flop` of everything online and
        `offline_flop` of what was prepared before; `kv_bytes`, the peak size of the KV cache, and
        `offline_kv_bytes`, those that stay from one question to the next; `weight_bytes` of all weights.

    Raises:
        UserError: unknown accounting; a prompt longer than the decoder's context.
    """
    trace, peak_bytes = _traced(name, method, engine, prompt, limits, accounting, counts)
    plain, _ = _traced("naive", naive, engine, prompt, limits, accounting, counts)
    cycles = compute_cycles(trace, engine.shape, accounting)
    prepared = [call for call in trace if call.offline]
    return {
        "method": name,
        "accounting": accounting,
        "compute_cycles": cycles,
        "theoretical_speedup": compute_cycles(plain, engine.shape, accounting) / cycles,
        "flop": flop(online(trace), engine.shape),
        "offline_flop": flop(prepared, engine.shape),
        "kv_bytes": peak_bytes,
        "offline_kv_bytes": kv_bytes(engine.shape, sum(call.cached for call in prepared), engine.precision),
        **asdict(engine.precision),
        "parameters": parameters(engine.shape),
        "weight_bytes": model_bytes(engine.shape, engine.precision),
        "tokens": prompt.token_counts(),
        "trace": [call.to_json() for call in trace],
    }


def _traced(
    name: str, method: Any, engine: Any, prompt: Any, limits: Any, accounting: str, counts: str
) -> tuple[Trace, int]:
    """(the trace with its offline calls, the peak of the cache in bytes)."""
    published = accounting == "published"
    if published:
        method, prompt = _as_published(name, method, prompt)
    with engine.tracing() as trace:
        method.answer(engine, method.prepare(engine, prompt), prompt, limits)
    if published and name == "superposition" and method.prunes and counts not in SINGLE_QUERY_COUNTS:
        trace = with_sequential_queries(trace, method.top_k)
    return trace, engine.peak_cache_bytes


def _as_published(name: str, method: Any, prompt: Any) -> tuple[Any, Any]:
    """The method and the prompt as the paper counts them (`cycles`, rules 3 and 5)."""
    if name in PLAIN:
        return method, prompt
    if name == "superposition":
        method = replace(method, drop_first_token=False)
        if method.iterations > 1:
            method = replace(method, iterations=method.iterations + (method.top_k == 1), top_k=1)
    documents = [ids[1:] or ids for ids in prompt.documents]
    return method, replace(
        prompt, documents=documents, query=prompt.query[1:] or prompt.query, task=prompt.task[1:] or prompt.task
    )
