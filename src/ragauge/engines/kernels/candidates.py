"""The kernels that compute products, attentions and log-probabilities on a CPU, by name.

Each is the fastest of them on some processor, data type and number of rows; `names` says where each is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.kernels import compiled

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
MEASURED = (*FLOATS, torch.int8)  # types of matrices that kernels are chosen for
COMPILED = "compiled"  # needs a C compiler


class Operation:
    """What kernels are chosen for separately, by its name in a table."""

    ONE, FEW, MANY = "product of 1 row", "product of 2 to 16 rows", "product of more rows"
    ATTENTION = "attention of several queries"
    LIKELIHOOD = "log-probability of tokens"
    STEP, STEPS = "all layers for 1 token", "all layers for 2 to 16 tokens"

    @classmethod
    def product(cls, rows: int) -> str:
        return cls.ONE if rows == 1 else cls.FEW if rows <= compiled.MOST_ROWS else cls.MANY

    @classmethod
    def layers(cls, tokens: int) -> str:
        return cls.STEP if tokens == 1 else cls.STEPS


OPERATIONS = tuple(value for name, value in vars(Operation).items() if name.isupper())


def names(operation: str, dtype: torch.dtype) -> list[str]:
    """The kernels that can run an operation in a data type on this machine."""
    found = ["plain"]
    if operation in (Operation.ONE, Operation.FEW, Operation.MANY) and dtype in FLOATS:
        found += ["native"] if operation == Operation.ONE or dtype == torch.float32 else []
        found += ["parts"] if operation == Operation.ONE and dtype == torch.float32 else []
        found += ["onednn"] if _has_onednn(dtype) else []
        found += ["widened"] if dtype != torch.float32 else []
    many = operation == Operation.MANY and dtype != torch.int8  # bound by arithmetic: torch's libraries are faster
    if dtype in compiled.KINDS and not many and compiled.library() is not None:
        found.append(COMPILED)
    return found


# --- products: (token, in), (out, in), (out,) or None -> (token, out) ---

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _native(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By torch's own kernels: oneDNN, which torch prefers, is made for many tokens."""
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags takes as long as a small product
    try:
        return F.linear(x, weight, bias)
    finally:
        torch._C._set_mkldnn_enabled(True)


def _parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The matrix's rows in parts, side by side: some libraries read a whole matrix with one thread for one token."""
    parts = math.gcd(weight.shape[0], 2 * torch.get_num_threads())
    rows = weight.view(parts, -1, weight.shape[1])
    product = torch.bmm(rows, x.t().expand(parts, -1, 1)).view(1, -1)
    return product if bias is None else product + bias


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """oneDNN's inner product, as torch.compile calls it: not the matrix product that F.linear takes."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies the type on this processor; otherwise it raises."""
    halves: dict[torch.dtype, Any] = {
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


PRODUCTS: dict[str, Product] = {
    "plain": F.linear,
    "native": _native,
    "parts": _parts,
    "onednn": _onednn,
    "widened": _widened,
    COMPILED: _compiled,
}


# --- attentions; see `kernels.attend` ---


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    rows, heads, queries, dim = q.shape
    if queries == 1 and heads != k.shape[1]:  # the heads that share keys become queries of one head
        grouped = q.reshape(rows, k.shape[1], heads // k.shape[1], dim)
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(rows, heads, 1, dim)
    shared = bool(heads != k.shape[1])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=shared)


def _attention_compiled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """By `attention.c`, whose sums are float32."""
    found = compiled.attend(q, k, v, mask, causal)
    return _sdpa(q, k, v, mask, causal) if found is None else found


ATTENTIONS: dict[str, Callable[..., Tensor]] = {"plain": _sdpa, COMPILED: _attention_compiled}


# --- log-probabilities: logits (token, vocab), targets (token,) -> (token,) in float32 ---


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return -F.cross_entropy(logits.float(), targets, reduction="none")


LIKELIHOODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": _cross_entropy,
    COMPILED: compiled.log_probabilities,
}
