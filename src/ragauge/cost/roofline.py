"""The roofline: the fewest seconds that a trace takes on a machine of `cost.machine`
(docs/cost-accounting.md).
"""

from collections.abc import Mapping
from typing import Any

from ragauge.cost import flop
from ragauge.cost.cycles import dtype_bytes, kv_bytes
from ragauge.cost.flop import Layers
from ragauge.cost.hardware import Precision, precision
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.errors import unknown

MachineRates = Mapping[str, Any]

# of measured seconds to a floor; below it, the machine's rates were measured wrong
LEAST_RATIO = 0.95
SCALE_BYTES = 4  # of a float32 scale, which 8-bit integers are multiplied with


def call_bytes(call: Call, shape: Shape, dtype: object, answers: int = 1) -> int:
    """Bytes that a call must move, in so many answers side by side: weights once a step, keys and
    values read and written by each row. `dtype`, here and below, is a torch dtype, its name or a
    `Precision`. A call whose MACs are stated counts 0.
    """
    if call.macs is not None:
        return 0
    layers = range(*call.layers or (0, shape.layers))
    return call.steps * weight_bytes(call, shape, dtype) + answers * sum(
        kv_bytes(shape, _kv_tokens(call, shape.window(i)), dtype, (i, i + 1)) for i in layers
    )


def weight_bytes(call: Call, shape: Shape, dtype: object) -> int:
    """Bytes of the matrices that one step of a call reads; the output matrix only where logits are
    computed.
    """
    return _matrix_bytes(shape, call.layers, any(call.logits), precision(dtype))


def model_bytes(shape: Shape, dtype: object) -> int:
    """Bytes of all of a decoder's weights in memory; in 8 bits, a tied output matrix is not the
    embedding.
    """
    storage = precision(dtype)
    in_full = flop.parameters(shape)
    if storage.weights == "full":
        return in_full * dtype_bytes(storage.dtype)
    in_full -= flop.layer_weights(shape)
    if not shape.tied:
        in_full -= flop.output_weights(shape)
    return in_full * dtype_bytes(storage.dtype) + _matrix_bytes(shape, None, True, storage)


def _matrix_bytes(shape: Shape, layers: Layers, with_output: bool, storage: Precision) -> int:
    count = flop.layer_weights(shape, layers)
    rows = flop.layer_rows(shape, layers)
    if with_output:
        count += flop.output_weights(shape)
        rows += shape.vocab
    if storage.weights == "full":
        return count * dtype_bytes(storage.dtype)
    if storage.weights == "int4":  # of any file the least: 4 bits, and half a bit of scales
        return count * 9 // 16
    return count + SCALE_BYTES * rows


def floor_seconds(call: Call, shape: Shape, dtype: object, machine: MachineRates) -> float:
    """Least seconds of a call.

    Raises:
        UserError: the machine was not measured in this dtype.
    """
    memory_s = call_bytes(call, shape, dtype) / machine["bandwidth_bytes_per_s"]["high"]
    return max(product_seconds(call, shape, dtype, machine), memory_s)


def product_seconds(call: Call, shape: Shape, dtype: object, machine: MachineRates) -> float:
    """Least seconds of a call's products alone."""
    macs = flop.call_macs(call, shape)
    computed_in = precision(dtype)
    rate = matmul_rate(machine, computed_in.dtype)
    if computed_in.weights == "full" or call.macs is not None:
        return flop.FLOP_PER_MAC * macs / rate
    rows = zip(call.lengths, call.past, strict=True)
    attention = sum(
        flop.attention_macs(shape, new, past, call.steps, call.layers) for new, past in rows
    )
    return flop.FLOP_PER_MAC * (
        attention / rate + (macs - attention) / matmul_rate(machine, "int8")
    )


def matmul_rate(machine: MachineRates, dtype: object) -> float:
    """The best rate of matrix products in this dtype, FLOP/s."""
    rates = machine["matmul_flop_per_s"]
    name = precision(dtype).dtype
    if name not in rates:
        raise unknown("dtype", name, rates, machine.get("name", "measured machine"))
    return float(rates[name]["high"])


def _kv_tokens(call: Call, window: int | None) -> int:
    """Tokens whose keys and values a call reads (past and new) or writes (new), over its rows and
    steps. `window`: of the layer; of the past, what its first new token sees of it is read.
    """
    tokens = 0
    for new, past in zip(call.lengths, call.past, strict=True):
        most = None if window is None else window - 1 + new
        tokens += flop.keys_of_steps(new, past, call.steps, most) + call.steps * new
    return tokens
