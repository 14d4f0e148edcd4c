"""The kernels that compute a product or an attention on a CPU, by name. Only those that are fastest somewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.kernels import compiled

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
HALVES = FLOATS[1:]
MEASURED = (*FLOATS, torch.int8)  # types of matrices that kernels are chosen for
COMPILED = "compiled"  # needs a C compiler
COMPILED_INPUT = "compiled_input"  # rounds activations to 8 bits; torch multiplies

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(token, in), (out, in), (out,) or None -> (token, out)."""


@dataclass(frozen=True)
class Kernel:
    """A way to compute something, and where it is valid."""

    run: Callable[..., Tensor]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    most: float = math.inf  # rows of a product, queries of an attention
    usable: Callable[[torch.dtype], bool] = lambda dtype: True  # on this processor


# --- products ---


def _without_onednn(run: Product) -> Product:
    """By torch's own kernels: oneDNN, which torch prefers, is made for many tokens."""

    def native(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags takes as long as a small product
        try:
            return run(x, weight, bias)
        finally:
            torch._C._set_mkldnn_enabled(True)

    return native


def _vector(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A matrix times a vector."""
    product = torch.mv(weight, x[0]) if bias is None else torch.addmv(bias, weight, x[0])
    return product[None]


def _parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The matrix's rows in parts, side by side: some libraries read a whole matrix with one thread for one token."""
    parts = math.gcd(weight.shape[0], 2 * torch.get_num_threads())
    rows = weight.view(parts, -1, weight.shape[1])
    product = torch.bmm(rows, x.t().expand(parts, -1, 1)).view(1, -1)
    return product if bias is None else product + bias


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """oneDNN's inner product, as torch.compile calls it: not the matrix product that F.linear takes."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _onednn_takes(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies the type on this processor, or raises."""
    halves = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return dtype not in halves or bool(halves[dtype]())


def _widened(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In float32, rounded once: for processors that multiply half precision more slowly than they convert it."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def _compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By `compiled.c`, which sums in float32."""
    matrix = compiled.Matrix.of(weight, bias)
    return F.linear(x, weight, bias) if matrix is None else compiled.multiply(matrix, x)


PRODUCTS: dict[str, Kernel] = {
    "plain": Kernel(F.linear),
    "native": Kernel(_without_onednn(F.linear)),
    "vector": Kernel(_vector, most=1),
    "native_vector": Kernel(_without_onednn(_vector), HALVES, most=1),
    "parts": Kernel(_parts, (torch.float32,), most=1),
    "onednn": Kernel(_onednn, usable=_onednn_takes),
    "widened": Kernel(_widened, HALVES),
    COMPILED: Kernel(_compiled, (torch.float32, torch.bfloat16), most=compiled.MOST_ROWS),
}


def _int8(linear: Any, x: Tensor) -> Tensor:
    product: Tensor = linear.many(x)
    return product


def _int8_input(linear: Any, x: Tensor) -> Tensor:
    product: Tensor = linear.many(x, compiled.quantised)
    return product


def _int8_compiled(linear: Any, x: Tensor) -> Tensor:
    return compiled.multiply(linear.panels, x)


INT8_PRODUCTS: dict[str, Kernel] = {  # of an `int8.Int8Linear` and its input
    "plain": Kernel(_int8, (torch.int8,)),
    COMPILED: Kernel(_int8_compiled, (torch.int8,)),
    COMPILED_INPUT: Kernel(_int8_input, (torch.int8,)),
}


# --- all layers ---

Pass = Callable[[bool], Tensor]
"""Whether in one compiled call -> the states after all layers."""


def _by_operators(read: Pass) -> Tensor:
    return read(False)


def _in_one_call(read: Pass) -> Tensor:
    return read(True)


PASSES: dict[str, Kernel] = {
    "plain": Kernel(_by_operators, MEASURED),
    COMPILED: Kernel(_in_one_call, (torch.float32, torch.bfloat16, torch.int8), most=compiled.MOST_ROWS),
}


# --- attentions ---


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    if q.shape[2] == 1 and grouped:
        return _single(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=bool(grouped))


def _single(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Single queries: the heads that share keys become queries of one head."""
    rows, heads, queries, dim = q.shape
    grouped = q.reshape(rows, k.shape[1], heads // k.shape[1] * queries, dim)
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(rows, heads, queries, dim)


def _sdpa_widened(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """In float32, rounded once."""
    return _sdpa(q.float(), k.float(), v.float(), mask, causal).to(q.dtype)


def _by_head(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Single queries by torch's own sdpa, one key-value head repeated for each of its query heads."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=bool(q.shape[1] != k.shape[1]))


def _attention_compiled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """By `attention.c`, whose sums are float32."""
    found = compiled.attend(q, k, v, mask, causal)
    return _sdpa(q, k, v, mask, causal) if found is None else found


ATTENTIONS: dict[str, Kernel] = {
    "plain": Kernel(_sdpa),
    "by_head": Kernel(_by_head, most=1),
    "widened": Kernel(_sdpa_widened, HALVES),
    COMPILED: Kernel(_attention_compiled, (torch.float32, torch.bfloat16)),
}


# --- log-probabilities ---


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return -F.cross_entropy(logits.float(), targets, reduction="none")


LIKELIHOODS: dict[str, Kernel] = {
    "plain": Kernel(_cross_entropy),
    COMPILED: Kernel(compiled.log_probabilities, (torch.float32, torch.bfloat16)),
}
