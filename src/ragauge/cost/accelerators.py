"""Predictions of seconds and money on accelerators, from data-sheet rates: folds over a trace
(docs/cost-accounting.md).
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from ragauge.cost import shapes
from ragauge.cost.cycles import without_decoding
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import (
    MachineRates,
    memory_seconds,
    model_bytes,
    product_seconds,
)
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace, online
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.sections import Section

# lax: YAML reads 8e10, without a point and a sign, as text
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
On = tuple[Shape, Precision, "Accelerator"]
HEADS = ("requests/s", "1,000 answers")
NOTE = "predicted from data-sheet rates, not measured"


class Accelerator(Section):
    """Peak rates of an accelerator, or of several that share a model."""

    name: str
    source: str
    memory_bytes: Rate
    bandwidth_bytes_per_s: Rate
    matmul_flop_per_s: dict[Literal["float32", "bfloat16", "float16", "int8"], Rate]

    @property
    def rates(self) -> MachineRates:
        """The rates as the roofline takes them."""
        products = {dtype: {"high": rate} for dtype, rate in self.matmul_flop_per_s.items()}
        return {
            "bandwidth_bytes_per_s": {"high": self.bandwidth_bytes_per_s},
            "matmul_flop_per_s": products,
        }


def names() -> list[str]:
    """The accelerators whose data sheets are known, sorted."""
    return sorted(_data()["accelerators"])


def named(name: str) -> Accelerator:
    """An accelerator of `accelerators.yaml`; raises KeyError on other names."""
    return Accelerator(**_data()["accelerators"][name])


@cache
def measured_factors() -> dict[str, float]:
    """Measured seconds over the data sheet's roofline, on the one accelerator that was timed.

    Returns: `products` of calls that matrix products bound, `memory` of calls that memory bounds,
        `batched_decoding` of the decoding of many answers side by side, whose reading is taken to
        have had the first two.
    """
    measured = _data()["measured"]
    shape = shapes.named(measured["model"])
    on = (shape, Precision(measured["dtype"]), named(measured["accelerator"]))
    factors = dict[str, float]()
    for name, time in measured["times"].items():
        calls = [Call.from_json(call) for call in time["calls"]]
        reading_s = _seconds(calls[:-1], *on, factors, time["answers"])
        roofline_s = _seconds(calls[-1:], *on, {}, time["answers"])
        factors[name] = (time["seconds"] - reading_s) / roofline_s
    return factors


def predict(
    traces: Mapping[str, tuple[Trace, int]],
    shape: Shape,
    precision: Precision,
    accelerator: Accelerator,
    price: float | None = None,
) -> JsonObject:
    """Predict a method's seconds on an accelerator in each state of what was read before.

    Args:
        traces: by state, the trace of one answer and the peak of its keys and values in bytes.
        price: of an hour of the accelerator, in any currency.

    Returns: by state `answers_at_once`, which fit the memory next to the weights; and, by the
        `roofline` and `at_measured_factors`: `preparation_s` of what was read before,
        `first_token_s`, `per_token_s` (None: one token alone was generated), all of an answer by
        itself; `requests_per_s` with all answers that fit side by side; with a price
        `cost_per_1000_answers`.

    Raises UserError: no answer fits the memory next to the weights; no rate for the dtype.
    """
    on = (shape, precision, accelerator)
    weights = model_bytes(shape, precision)
    states = dict[str, JsonObject]()
    for state, (trace, kv_bytes) in traces.items():
        if weights + kv_bytes > accelerator.memory_bytes:
            raise UserError(
                f"--hardware: {weights / 1e9:.1f} GB of weights and {kv_bytes / 1e9:.1f} GB of keys"
                f" and values do not fit the {accelerator.memory_bytes / 1e9:.0f} GB of"
                f" {accelerator.name}; --weights int8 or int4 makes them smaller, or give a FILE"
                " with the rates and memory of several accelerators"
            )
        at_once = int((accelerator.memory_bytes - weights) // kv_bytes)
        before = [call for call in trace if call.offline]
        states[state] = {
            "answers_at_once": at_once,
            "kv_bytes_an_answer": kv_bytes,
        }
        for name, factors in (("roofline", {}), ("at_measured_factors", measured_factors())):
            times = _times(online(trace), on, factors, at_once, price)
            states[state][name] = {"preparation_s": _seconds(before, *on, factors), **times}
    about = _data()["measured"]
    return {
        "note": NOTE,
        "precision": str(precision),
        "hardware": accelerator.model_dump(),
        "price_per_hour": price,
        "factors": measured_factors(),
        "factors_of": f"{about['model']}, {about['dtype']}, {named(about['accelerator']).name}",
        "states": states,
    }


def table(prediction: JsonObject) -> str:
    """The prediction as text: two rows a state, with the assumptions above them."""
    factors = ", ".join(f"{key} {factor:.2f}" for key, factor in prediction["factors"].items())
    hardware = prediction["hardware"]
    lines = [
        f"{hardware['name']}, {prediction['precision']}, {prediction['new_tokens']} tokens an answer",
        f"{prediction['note']}; rates: {hardware['source']}",
        f"measured over this roofline: {factors} ({prediction['factors_of']})",
        "",
        _row("read before", "seconds by", "reading", "first token", "a token", "at once", *HEADS),
    ]
    for state, of in prediction["states"].items():
        for name in ("roofline", "at_measured_factors"):
            before, first, token, requests, *cost = (
                "-" if value is None else f"{value:.3g}" for value in of[name].values()
            )
            at_once = of["answers_at_once"]
            how = name.replace("at_", "").replace("_", " ")
            lines.append(_row(state, how, before, first, token, at_once, requests, *cost))
    return "\n".join(lines)


def _row(state: str, how: str, *cells: object) -> str:
    return f"{state:12}{how:17}" + "".join(f"{cell!s:>13}" for cell in cells)


def _times(
    trace: Trace, on: On, factors: Mapping[str, float], at_once: int, price: float | None
) -> JsonObject:
    written = [call for call in trace if call.stage == "decode"]
    steps = sum(call.steps for call in written)
    requests_per_s = at_once / _seconds(trace, *on, factors, at_once)
    times: dict[str, Any] = {
        "first_token_s": _seconds(without_decoding(trace), *on, factors),
        "per_token_s": _seconds(written, *on, factors) / steps if steps else None,
        "requests_per_s": requests_per_s,
    }
    if price is not None:
        times["cost_per_1000_answers"] = price / 3600 * 1000 / requests_per_s
    return times


def _seconds(
    calls: Trace,
    shape: Shape,
    precision: Precision,
    accelerator: Accelerator,
    factors: Mapping[str, float],
    answers: int = 1,
) -> float:
    """Seconds of calls one after another, each of so many answers side by side, by the factor of
    what bounds it; without factors, the roofline.
    """
    total = 0.0
    for call in calls:
        products_s = answers * product_seconds(call, shape, precision, accelerator.rates)
        memory_s = memory_seconds(call, shape, precision, accelerator.rates, answers)
        if answers > 1 and call.stage == "decode":
            total += max(products_s, memory_s) * factors.get("batched_decoding", 1.0)
        else:
            by_products_s = products_s * factors.get("products", 1.0)
            total += max(by_products_s, memory_s * factors.get("memory", 1.0))
    return total


@cache
def _data() -> JsonObject:
    text = files("ragauge.cost").joinpath("accelerators.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))
