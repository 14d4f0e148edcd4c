"""Multiply-accumulates (MACs) of a decoder, in closed form: one formula, one function
(docs/cost-accounting.md).

The count is that of matrix products alone, as fvcore counts them, with dense attention: a token
counts as many keys as there are, at most those of the layer's sliding window. One MAC is two
floating-point operations.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, pairwise

from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call

FLOP_PER_MAC = 2

Layers = tuple[int, int] | None
"""From the first to before the last of these layers alone; None: all."""


@lru_cache(maxsize=64)  # every row of every call of a trace asks for it
def layer_weights(shape: Shape, layers: Layers = None) -> int:
    """Weights of all layers' matrices (or those of a range), which is also the MACs of one token
    through them.
    """
    chosen = slice(*layers or (None,))
    # queries and outputs, keys and values
    heads = 2 * sum(shape.heads[chosen]) + 2 * sum(shape.kv_heads[chosen])
    return shape.d_model * (
        shape.head_dim * heads + (3 if shape.gated else 2) * sum(shape.ffn[chosen])
    )


def output_weights(shape: Shape) -> int:
    """Weights of the output matrix, which is also the MACs of one position's logits."""
    return shape.vocab * shape.d_model


def attention_macs(shape: Shape, new: int, past: int, steps: int = 1, layers: Layers = None) -> int:
    """Query·key and probability·value products of `new` tokens a step, of which step s has `past +
    s * new` behind it. Dense: `heads * head_dim * n * (past + n)` for each of the two products,
    summed over layers and steps; in a layer with a sliding window of w tokens `min(past + n, w)`.
    """
    if shape.shortest_window is None:
        pairs = new * keys_of_steps(new, past, steps)
        return 2 * pairs * sum(shape.heads[slice(*layers or (None,))]) * shape.head_dim
    chosen = range(*layers or (0, shape.layers))
    pairs = sum(
        shape.heads[i] * new * keys_of_steps(new, past, steps, shape.window(i)) for i in chosen
    )
    return 2 * pairs * shape.head_dim


def keys_of_steps(new: int, past: int, steps: int, most: int | None = None) -> int:
    """Keys that are there in each of `steps` steps of `new` tokens, at most `most` in one: their
    sum over the steps.
    """
    growing = steps if most is None or not new else min(steps, max(0, (most - past) // new))
    keys = growing * (past + new) + new * (growing * (growing - 1) // 2)
    return keys + (steps - growing) * (most or 0)


def row_macs(call: Call, shape: Shape) -> tuple[int, ...]:
    """MACs of each row of a call. A stated total is divided over the rows by their lengths."""
    if call.macs is not None:
        return _divide(call.macs, call.lengths)
    logits = call.logits or (0,) * len(call.lengths)
    return tuple(
        call.steps * (new * layer_weights(shape, call.layers) + scored * output_weights(shape))
        + attention_macs(shape, new, past, call.steps, call.layers)
        for new, past, scored in zip(call.lengths, call.past, logits, strict=True)
    )


def call_macs(call: Call, shape: Shape) -> int:
    return sum(row_macs(call, shape))


def trace_macs(trace: Iterable[Call], shape: Shape) -> int:
    """MACs of all calls of a trace, offline ones included."""
    return sum(call_macs(call, shape) for call in trace)


def flop(trace: Iterable[Call], shape: Shape) -> int:
    """Floating-point operations of all calls of a trace, offline ones included."""
    return FLOP_PER_MAC * trace_macs(trace, shape)


@lru_cache(maxsize=64)
def layer_rows(shape: Shape, layers: Layers = None) -> int:
    """Rows (output channels) of all layers' matrices, or of those of a range."""
    chosen = range(*layers or (0, shape.layers))
    heads = sum(shape.heads[i] + 2 * shape.kv_heads[i] for i in chosen) * shape.head_dim
    return heads + sum(2 * shape.d_model + (2 if shape.gated else 1) * shape.ffn[i] for i in chosen)


def parameters(shape: Shape) -> int:
    """Parameters of the decoder: what `numel` of a checkpoint's tensors sums to, tied matrices
    counted once.
    """
    matrices = layer_weights(shape) + output_weights(shape) * (1 if shape.tied else 2)
    norm = shape.d_model * (2 if shape.norm_bias else 1)
    # the final norm and, in BLOOM, the norm after the embedding
    stem = norm * (2 if shape.embedding_norm else 1)
    vectors = 2 * norm * shape.layers * (2 if shape.norm_place == "both" else 1)
    for heads, kv_heads, ffn in zip(shape.heads, shape.kv_heads, shape.ffn, strict=True):
        if shape.bias or shape.attention_bias:
            vectors += (heads + 2 * kv_heads) * shape.head_dim
        if shape.bias or shape.output_bias:
            vectors += shape.d_model
        if shape.bias or shape.mlp_bias:
            vectors += ffn * (2 if shape.gated else 1) + shape.d_model
        if shape.qk_norm:
            vectors += 2 * shape.head_dim
        if shape.qk_norm_joint:
            vectors += (heads + kv_heads) * shape.head_dim
    return matrices + vectors + stem


def _divide(total: int, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """`total` in shares proportional to `lengths`, whose sum is `total` exactly."""
    whole = sum(lengths)
    if not whole:
        return (total,) + (0,) * (len(lengths) - 1)
    ends = [total * length // whole for length in accumulate(lengths, initial=0)]
    return tuple(end - start for start, end in pairwise(ends))
