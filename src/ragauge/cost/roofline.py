"""The roofline: the fewest seconds in which a machine could do a trace.

A step of a call takes at least `max(2 * macs / rate, bytes / bandwidth)` seconds, where `rate` is the machine's matrix
product rate in the decoder's dtype (FLOP/s), `bandwidth` its streaming read rate (bytes/s), and `bytes` are the
weights once, the keys and values that each row attends to, and the new ones it writes. Activations, launches and
everything between calls count nothing. The machine is what `cost.machine.measure` returns; a floor takes the best
that it showed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.cost.cycles import dtype_bytes, kv_bytes
from ragauge.cost.flop import FLOP_PER_MAC, call_macs, layer_weights, output_weights
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.errors import unknown

Machine = Mapping[str, Any]


def call_bytes(call: Call, shape: Shape, dtype: object) -> int:
    """Bytes that a call must move: weights once a step, keys and values read and written by each row.

    A call whose MACs are given outright (an encoder's) moves nothing known; it counts 0.
    """
    if call.macs is not None:
        return 0
    return call.steps * weight_bytes(call, shape, dtype) + kv_bytes(shape, _kv_tokens(call), dtype, call.layers)


def weight_bytes(call: Call, shape: Shape, dtype: object) -> int:
    """Bytes of the matrices that one step of a call reads; the output matrix only where logits are computed."""
    count = layer_weights(shape, call.layers) + (output_weights(shape) if any(call.logits) else 0)
    return count * dtype_bytes(dtype)


def floor_seconds(call: Call, shape: Shape, dtype: object, machine: Machine) -> float:
    """Least seconds of a call; raises UserError when the machine was not measured in this dtype."""
    compute_s = FLOP_PER_MAC * call_macs(call, shape) / matmul_rate(machine, dtype)
    memory_s = call_bytes(call, shape, dtype) / machine["bandwidth_bytes_per_s"]["high"]
    return max(compute_s, memory_s)


def matmul_rate(machine: Machine, dtype: object) -> float:
    """The best matrix product rate that the machine showed in this dtype, FLOP/s."""
    rates = machine["matmul_flop_per_s"]
    name = str(dtype).removeprefix("torch.")
    if name not in rates:
        raise unknown("dtype", name, rates, "measured machine")
    return float(rates[name]["high"])


def _kv_tokens(call: Call) -> int:
    """Tokens whose keys and values a call reads (past and new) or writes (new), over its rows and steps."""
    growth = call.steps * (call.steps - 1) // 2
    return sum(call.steps * (past + 2 * new) + new * growth for new, past in zip(call.lengths, call.past, strict=True))
