"""Costs of methods, computed from the decoder's shape alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.cost.flop import trace_macs
from ragauge.cost.hardware import precision
from ragauge.cost.report import cost_report
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.engines import ShapeLM
from ragauge.errors import UserError
from ragauge.measure.timing import fixed_length, shape_and_prompt
from ragauge.methods import Method, make
from ragauge.methods.dense import Dense


def project(
    name: str,
    method: Method,
    model: str,
    counts: str,
    new_tokens: int,
    accounting: str,
    dtype: object,
    counter: str = "closed_form",
) -> dict[str, Any]:
    """The cost of `method`, registered as `name`, on a model (a name or a folder), from its shape alone.

    Args:
        dtype: a torch dtype, its name or a `cost.hardware.Precision`.
        counter: `closed_form` or `fvcore`, whose count of the trace is then reported next to that of the formulas.
    """
    shape, prompt = shape_and_prompt(model, counts, new_tokens)
    engine = ShapeLM(shape, precision=precision(dtype))
    reason = method.refusal(engine)
    if reason:
        raise UserError(f"{name} on the shape of {model}: {reason}")
    if accounting != "total" and isinstance(method, Dense) and "contriever" in method.encoder:
        method = without_encoder(method)
    common: dict[str, Any] = {"limits": fixed_length(new_tokens), "accounting": accounting, "counts": counts}
    report = cost_report(name, method, make("naive"), engine, prompt, **common)
    if counter == "fvcore":
        report |= counted(report["trace"], shape)
    return {"model": model, **report}


def counted(trace: Sequence[Mapping[str, Any]], shape: Shape) -> dict[str, int]:
    """The multiply-accumulates of all calls of a trace, offline ones included: by the formulas and by fvcore."""
    from ragauge.measure.counting import fvcore_macs

    calls = [Call.from_json(dict(call)) for call in trace]
    return {"closed_form_macs": trace_macs(calls, shape), "fvcore_macs": fvcore_macs(calls, shape)}


def without_encoder(method: Method) -> Method:
    """The method itself, or, for dense retrieval, the same without the encoder's weights."""
    return method.without_encoder() if isinstance(method, Dense) else method
