"""Products, attentions, norms, gates, rotations and log-probabilities, by the chosen kernels.

See docs/engine.md. On a GPU, for gradients and in exports torch's own kernels run.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines import rope
from ragauge.engines.kernels import choice, compiled
from ragauge.engines.kernels.choice import COMPILED, PLAIN, Operation

PRODUCT_SIZES = (Operation.ONE_ROW, Operation.FEW_ROWS, Operation.MANY_ROWS)


def candidates(operation: str, dtype: torch.dtype) -> list[str]:
    """The kernels that can run an operation in a data type on this machine; int8: of matrices."""
    is_int8 = dtype == torch.int8
    is_float32 = dtype == torch.float32
    is_product = operation in PRODUCT_SIZES and not is_int8
    one_row = operation == Operation.ONE_ROW and not is_int8
    many_rows = operation == Operation.MANY_ROWS
    has_library = dtype in compiled.KINDS and compiled.library() is not None
    possible = {
        "native": one_row or (is_product and is_float32),
        "parts": one_row and is_float32,
        # of integers: between steps of `compiled.c`
        "onednn": _has_onednn(dtype) if is_product else many_rows and is_int8 and has_library,
        "widened": is_product and not is_float32,
        # many rows are bound by arithmetic: torch's libraries are faster
        COMPILED: has_library and (is_int8 or not many_rows),
    }
    return [PLAIN, *(name for name, is_possible in possible.items() if is_possible)]


Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(token, in), (out, in), (out,) or None -> (token, out)."""


def _native(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By torch's own kernels: oneDNN, which torch prefers, is made for many tokens.

    One row in half precision is a vector, for which torch has other kernels.
    """
    # torch.backends.mkldnn.flags takes as long as a small product
    torch._C._set_mkldnn_enabled(False)
    try:
        if x.shape[0] > 1 or x.dtype == torch.float32:
            return F.linear(x, weight, bias)
        return (torch.mv(weight, x[0]) if bias is None else torch.addmv(bias, weight, x[0]))[None]
    finally:
        torch._C._set_mkldnn_enabled(True)


def _parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The matrix's rows in parts, side by side: some libraries read a whole matrix with one thread
    for one token.
    """
    parts = math.gcd(weight.shape[0], 2 * torch.get_num_threads())
    rows = weight.view(parts, -1, weight.shape[1])
    product = torch.bmm(rows, x.t().expand(parts, -1, 1)).view(1, -1)
    return product if bias is None else product + bias


def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies the type on this processor; otherwise it raises."""
    halves = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    if dtype not in halves:
        return True
    return getattr(torch.ops.mkldnn, f"_is_mkldnn_{halves[dtype]}_supported")()


def _compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By `compiled.c`, which sums in float32."""
    matrix = compiled.Matrix.of(weight, bias)
    return F.linear(x, weight, bias) if matrix is None else compiled.multiply(matrix, x)


PRODUCTS: dict[str, Product] = {
    PLAIN: F.linear,
    "native": _native,
    "parts": _parts,
    # oneDNN's inner product, as torch.compile calls it: not the matrix product that F.linear takes
    "onednn": lambda x, weight, bias: torch.ops.mkldnn._linear_pointwise(
        x, weight, bias, "none", [], ""
    ),
    # in float32, rounded once: for processors that multiply half precision more slowly than they
    # convert it
    "widened": lambda x, weight, bias: F.linear(
        x.float(), weight.float(), bias if bias is None else bias.float()
    ).to(x.dtype),
    COMPILED: _compiled,
}


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    rows, heads, queries, dim = q.shape
    if queries == 1 and heads != k.shape[1]:  # the heads that share keys become queries of one head
        grouped = q.reshape(rows, k.shape[1], heads // k.shape[1], dim)
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).reshape(
            rows, heads, 1, dim
        )
    shared = bool(heads != k.shape[1])
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=shared
    )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(token, in), (out, in) -> (token, out)."""
    name = PLAIN if torch_only(weight) else choice.product_kernel(weight.dtype, x.shape[0])
    return PRODUCTS[name](x, weight, bias)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scaled dot-product attention of queries (row, head, query, dim) over keys and values (row,
    kv_head, key, dim).

    Args: mask: (row, 1, query, key), true where attended; None: all, or the lower triangle where
        `causal`.
    """
    attended = compiled.attend(q, k, v, mask, causal) if _compiles(q, Operation.ATTENTION) else None
    return _sdpa(q, k, v, mask, causal) if attended is None else attended


def attend_gathered(
    q: Tensor, k: Tensor, v: Tensor, slots: Tensor, mask: Tensor | None
) -> Tensor | None:
    """`attend` over keys and values (kv_head, slot, dim) of which each row has its own slots (row,
    key), without gathering them; None where the chosen kernel does not do that.
    """
    if not _compiles(q, Operation.ATTENTION):
        return None
    return compiled.attend(q, k[None], v[None], mask, slots=slots)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """(..., width), or (token, head, dim) under a weight of all heads together."""
    compiles = weight.dim() == 1 and _compiles(x, Operation.ROWWISE)
    return compiled.normed(x, weight, eps) if compiles else F.rms_norm(x, weight.shape, weight, eps)


def gate(inner: Tensor, activation: str) -> Tensor:
    """activation(gate) * value of a gated MLP: (token, gate then value) -> (token, unit)."""
    if activation == "silu" and _compiles(inner, Operation.ROWWISE):
        return compiled.gated(inner)
    gates, values = inner.chunk(2, -1)
    return ACTIVATIONS[activation](gates).mul_(values)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rope.rotate` of heads (token, head, dim), which may be overwritten."""
    compiles = x.stride(1) == x.shape[2] and _compiles(x, Operation.ROWWISE)
    return compiled.rotated(x, cos, sin) if compiles else rope.rotate(x, cos, sin)


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (token, vocab), targets (token,) -> the targets' log-probabilities (token,) in
    float32.
    """
    if _compiles(logits, Operation.LIKELIHOOD):
        return compiled.log_probabilities(logits, targets)
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def _compiles(tensor: Tensor, operation: Operation) -> bool:
    return not torch_only(tensor) and choice.active().kernel(tensor.dtype, operation) == COMPILED


def torch_only(tensor: Tensor) -> bool:
    """Whether torch's own kernels alone may run: on a GPU, for gradients, or in an export."""
    return tensor.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting()
