"""Predictions of seconds and money on accelerators, from data-sheet rates: folds over a trace
(docs/cost-accounting.md).
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from ragauge.cost.cycles import without_decoding
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import MachineRates, call_bytes, model_bytes, product_seconds
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace, online
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.sections import Section
from ragauge.text import aligned

# Seconds over the data sheet's roofline of calls that products bound, of calls that memory bounds,
# and of decoding many answers side by side, whose prompts are taken to be read by the first. From
# benchmarks/results/h100/gpu.json: `prefill`; `decode` less `context`; `side by side`.
MEASURED = {"products": 1.81, "memory": 1.71, "batched_decoding": 5.2}
MEASURED_ON = "llama-2-7b in bfloat16 on an NVIDIA H100 80 GB SXM, ragauge's decoder"
NO_FACTORS = dict.fromkeys(MEASURED, 1.0)

# not strict: YAML reads 8e10, without a point and a sign, as text
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]


class Accelerator(Section):
    """Peak rates of an accelerator, or the sums of several that share a model."""

    name: str
    source: str
    memory_bytes: Rate
    bandwidth_bytes_per_s: Rate
    matmul_flop_per_s: dict[Literal["float32", "bfloat16", "float16", "int8"], Rate]

    @property
    def product_rates(self) -> MachineRates:
        """The rates of matrix products as the roofline takes them."""
        products = {dtype: {"high": rate} for dtype, rate in self.matmul_flop_per_s.items()}
        return {"name": self.name, "matmul_flop_per_s": products}


@cache
def known() -> dict[str, Accelerator]:
    """The accelerators of `accelerators.yaml` by name."""
    entries = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    return {name: Accelerator(**entry) for name, entry in entries.items()}


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

    Returns: `rows`, two for each state, by the roofline and by it times the measured factors: of
        an answer by itself `reading_before_s` of what was read before, `first_token_s` and
        `per_token_s` (None: it has one token); `answers_at_once`, which fit the memory next to the
        weights; with so many side by side `requests_per_s` and, with a price,
        `cost_per_1000_answers`.

    Raises:
        UserError: no answer fits the memory next to the weights; no rate for the dtype.
    """
    weights = model_bytes(shape, precision)
    rows = list[JsonObject]()

    def seconds(calls: Iterable[Call], factors: Mapping[str, float], answers: int = 1) -> float:
        total = 0.0
        for call in calls:
            products_s = answers * product_seconds(
                call, shape, precision, accelerator.product_rates
            )
            moved = call_bytes(call, shape, precision, answers)
            memory_s = moved / accelerator.bandwidth_bytes_per_s
            if answers > 1 and call.stage == "decode":
                total += factors["batched_decoding"] * max(products_s, memory_s)
            else:
                total += max(factors["products"] * products_s, factors["memory"] * memory_s)
        return total

    for state, (trace, kv_bytes) in traces.items():
        at_once = int((accelerator.memory_bytes - weights) // kv_bytes)
        if at_once < 1:
            raise UserError(
                f"--hardware: {weights / 1e9:.1f} GB of weights and {kv_bytes / 1e9:.1f} GB of keys"
                f" and values exceed the memory of {accelerator.name}; use --weights int8 or int4,"
                " or a FILE with the sums of several"
            )
        decoding = [call for call in trace if call.stage == "decode"]
        steps = sum(call.steps for call in decoding)
        for name, factors in (("roofline", NO_FACTORS), ("measured factors", MEASURED)):
            requests_per_s = at_once / seconds(online(trace), factors, at_once)
            rows.append(
                {
                    "read_before": state,
                    "seconds_by": name,
                    "reading_before_s": seconds(
                        (c for c in trace if c.offline and not c.is_index), factors
                    ),
                    "first_token_s": seconds(without_decoding(online(trace)), factors),
                    "per_token_s": seconds(decoding, factors) / steps if steps else None,
                    "answers_at_once": at_once,
                    "requests_per_s": requests_per_s,
                    "cost_per_1000_answers": price and price / 3.6 / requests_per_s,
                }
            )
    return {
        "note": "predicted from data-sheet rates, not measured",
        "hardware": accelerator.model_dump(),
        "price_per_hour": price,
        "measured_factors": MEASURED,
        "factors_measured_on": MEASURED_ON,
        "rows": rows,
    }


def table(prediction: JsonObject) -> str:
    """The rows of a prediction as text, below what they were made from."""
    hardware = prediction["hardware"]
    about = f"{hardware['name']}: {prediction['note']} ({hardware['source']})"
    factors = f"measured factors {MEASURED}: {MEASURED_ON}"
    rows = prediction["rows"]
    cells = [
        [f"{cell:.3g}" if isinstance(cell, float) else str(cell or "-") for cell in row.values()]
        for row in rows
    ]
    return f"{about}\n{factors}\n\n{aligned([list(rows[0]), *cells])}"
