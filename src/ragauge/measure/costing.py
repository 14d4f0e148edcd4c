"""Costs of methods, computed from the decoder's shape alone: the numbers of `ragauge cost`."""

from dataclasses import asdict, replace

from ragauge.cost import accelerators
from ragauge.cost.accelerators import Accelerator
from ragauge.cost.cycles import (
    SINGLE_QUERY_COUNTS,
    compute_cycles,
    with_sequential_queries,
)
from ragauge.cost.flop import flop, parameters
from ragauge.cost.hardware import precision
from ragauge.cost.roofline import model_bytes
from ragauge.cost.trace import Trace, online
from ragauge.engines.shape_lm import ShapeLM
from ragauge.engines.spans import Span
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.measure.timing import fixed_length, shape_and_prompt
from ragauge.methods.base.making import make
from ragauge.methods.base.method import STATES, Method
from ragauge.methods.base.states import effective_state, in_state, usable_state
from ragauge.methods.dense import Dense
from ragauge.methods.prompts import Prompt
from ragauge.methods.superposition import Superposition

# methods that read one plain prompt, not segments
PLAIN = ("naive", "attention_sort", "closed_book", "oracle")


def project(
    name: str,
    method: Method,
    model: str,
    counts: str,
    new_tokens: int,
    accounting: str,
    dtype: object,
    accelerator: Accelerator | None = None,
    price: float | None = None,
) -> JsonObject:
    """The cost of `method`, registered as `name`, on a model (a name or a folder), from its shape
    alone. `dtype` is a torch dtype, its name or a `cost.hardware.Precision`; with an accelerator
    the seconds there are predicted (`accelerators.predict`).
    """
    shape, prompt = shape_and_prompt(model, counts, new_tokens)
    engine = ShapeLM(shape, precision=precision(dtype))
    if reason := method.refusal(engine):
        raise UserError(f"{name} on the shape of {model}: {reason}")
    if accounting != "total" and isinstance(method, Dense) and "contriever" in method.encoder:
        method = method.without_encoder()
    report = costs(name, method, engine, prompt, new_tokens, accounting, counts)
    if accelerator:
        usable = usable_state(method, len(prompt.documents) == 1)
        prepared = {state: in_state(method, effective_state(usable, state)) for state in STATES}
        traces: dict[str, tuple[Trace, int]] = {
            state: _trace(there, engine, prompt, new_tokens) for state, there in prepared.items()
        }
        predicted = accelerators.predict(traces, shape, engine.precision, accelerator, price)
        report["prediction"] = {"new_tokens": new_tokens, **predicted}
    return {"model": model, **report}


def costs(
    name: str,
    method: Method,
    engine: ShapeLM,
    prompt: Prompt,
    new_tokens: int = 1,
    accounting: str = "critical_path",
    counts: str = "",
) -> JsonObject:
    """Compute the costs of `method`, registered as `name`, on a prompt, and its speedup over the
    plain prompt.

    `new_tokens` of 1 is the cost of the first token; `accounting` is one of `cycles.ACCOUNTINGS`;
    on `counts`, the name of the prompt's token counts, depends how the paper counts queries
    (`cycles`, rule 4).

    Returns: `compute_cycles` and `theoretical_speedup` under the accounting; `flop` of everything
        online and `offline_flop` of what was prepared before; `kv_bytes`, the peak size of the KV
        cache, and `offline_kv_bytes`, those that stay from one question to the next; `weight_bytes`
        of all weights.

    Raises:
        UserError: unknown accounting; a prompt longer than the decoder's context.
    """
    trace, peak_bytes = _traced(name, method, engine, prompt, new_tokens, accounting, counts)
    plain, _ = _traced("naive", make("naive"), engine, prompt, new_tokens, accounting, counts)
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
        "offline_kv_bytes": sum(
            tensor.nbytes
            for call in prepared
            if call.cached
            for tokens in call.lengths
            for tensor in engine.new_cache(tokens).store(Span(0, tokens)).values()
        ),
        **asdict(engine.precision),
        "parameters": parameters(engine.shape),
        "weight_bytes": model_bytes(engine.shape, engine.precision),
        "tokens": prompt.token_counts(),
        "trace": [call.to_json() for call in trace],
    }


def _traced(
    name: str,
    method: Method,
    engine: ShapeLM,
    prompt: Prompt,
    new_tokens: int,
    accounting: str,
    counts: str,
) -> tuple[Trace, int]:
    """(the trace with its offline calls, the peak of the cache in bytes); as the paper counts them
    (`cycles`).
    """
    published = accounting == "published"
    if published and name not in PLAIN:  # rules 3 and 5
        if isinstance(method, Superposition):
            method = replace(method, drop_first_token=False)
            if method.hops == "one" and method.iterations > 1:  # rule 5
                method = replace(method, iterations=len(method.selected), top_k=1, hops="top_k")
        query, task, *documents = (
            ids[1:] or ids for ids in (prompt.query, prompt.task, *prompt.documents)
        )
        prompt = replace(prompt, documents=documents, query=query, task=task)
    trace, peak_bytes = _trace(method, engine, prompt, new_tokens)
    many_queries = published and counts not in SINGLE_QUERY_COUNTS  # rule 4
    if many_queries and isinstance(method, Superposition) and method.prunes:
        trace = with_sequential_queries(trace, method.top_k)
    return trace, peak_bytes


def _trace(method: Method, engine: ShapeLM, prompt: Prompt, new_tokens: int) -> tuple[Trace, int]:
    with engine.tracing() as trace:
        method.answer(engine, method.prepare(engine, prompt), prompt, fixed_length(new_tokens))
    return trace, engine.peak_cache_bytes
