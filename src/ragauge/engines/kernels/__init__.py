"""The kernels of products, attentions and log-probabilities: those measured to be fastest here, or
torch's own.

See docs/engine.md. `engines/tuning.py` times the candidates once on a machine, and `use` sets a
choice for this process. CUDA, exports and gradients use torch's own kernels.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.machine import engines_state
from ragauge.engines import rope
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.compiled import MOST_ROWS
from ragauge.engines.quantization import Slots

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
MEASURED = (*FLOATS, torch.int8)  # types of matrices that kernels are chosen for
COMPILED = "compiled"  # needs a C compiler
GAIN = 0.95  # the part of torch's own time that another kernel may take at most
Table = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""dtype -> operation -> `kernel`, and `seconds` of each candidate."""


class Operation(StrEnum):
    """What kernels are chosen for separately, by its name in a table."""

    ONE = "product of 1 row"
    FEW = "product of 2 to 16 rows"
    MANY = "product of more rows"
    ATTENTION = "attention of several queries"
    ROWS = "norms, gates and rotations"
    LIKELIHOOD = "log-probability of tokens"
    STEP = "all layers for 1 token"
    STEPS = "all layers for 2 to 16 tokens"


def candidates(operation: str, dtype: torch.dtype) -> list[str]:
    """The kernels that can run an operation in a data type on this machine."""
    names = ["plain"]
    if operation in (Operation.ONE, Operation.FEW, Operation.MANY) and dtype in FLOATS:
        names += ["native"] if operation == Operation.ONE or dtype == torch.float32 else []
        if operation == Operation.ONE:
            names.append("parts" if dtype == torch.float32 else "vector")
        names += ["onednn"] if _has_onednn(dtype) else []
        names += ["widened"] if dtype != torch.float32 else []
    if operation == Operation.MANY and dtype == torch.int8 and compiled.library() is not None:
        names.append("onednn")  # between steps of `compiled.c`
    # bound by arithmetic: torch's libraries are faster
    many = operation == Operation.MANY and dtype != torch.int8
    if dtype in compiled.KINDS and not many and compiled.library() is not None:
        names.append(COMPILED)
    return names


Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(token, in), (out, in), (out,) or None -> (token, out)."""


def _vector(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One row as a vector: in half precision torch has other kernels for that."""
    return (torch.mv(weight, x[0]) if bias is None else torch.addmv(bias, weight, x[0]))[None]


def _native(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By torch's own kernels: oneDNN, which torch prefers, is made for many tokens."""
    product = _vector if x.shape[0] == 1 and x.dtype != torch.float32 else F.linear
    # torch.backends.mkldnn.flags takes as long as a small product
    torch._C._set_mkldnn_enabled(False)
    try:
        return product(x, weight, bias)
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
    halves: dict[torch.dtype, Any] = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return dtype not in halves or bool(halves[dtype]())


def _compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """By `compiled.c`, which sums in float32."""
    matrix = compiled.Matrix.of(weight, bias)
    return F.linear(x, weight, bias) if matrix is None else compiled.multiply(matrix, x)


PRODUCTS: dict[str, Product] = {
    "plain": F.linear,
    "vector": _vector,
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


@dataclass(frozen=True)
class Choice:
    """The kernels that a process uses; torch's own for what the table does not list."""

    origin: str  # default, measured, or a file
    table: Table = field(default_factory=dict)
    _kernels: dict[tuple[torch.dtype, str], str] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for dtype, rows in self.table.items():
            of = getattr(torch, dtype)
            self._kernels.update(
                {(of, str(operation)): row["kernel"] for operation, row in rows.items()}
            )

    def kernel(self, dtype: torch.dtype, operation: str) -> str:
        """The name of the kernel."""
        return self._kernels.get((dtype, operation), "plain")

    def without(self, kernel: str) -> "Choice":
        """The same choice, with the fastest of this machine's other kernels in place of one."""
        table = {dtype: dict(rows) for dtype, rows in self.table.items()}
        for dtype, rows in table.items():
            for operation, row in rows.items():
                if row["kernel"] == kernel:
                    others = {*candidates(operation, getattr(torch, dtype))} - {kernel}
                    timed = {
                        name: s for name, s in row.get("seconds", {}).items() if name in others
                    }
                    rows[operation] = {**row, "kernel": fastest_kernel({"plain": math.inf} | timed)}
        return Choice(self.origin, table)

    def named(self, dtype: torch.dtype | None = None) -> dict[str, Any]:
        """What is not torch's own, as results state it: dtype -> operation -> kernel."""
        chosen: dict[str, Any] = {}
        for (of, operation), name in sorted(self._kernels.items(), key=str):
            if name != "plain" and dtype in (None, of):
                chosen.setdefault(str(of).removeprefix("torch."), {})[operation] = name
        return chosen

    def digest(self, dtype: torch.dtype) -> str:
        """A hash of the choice for a data type: equal choices give equal numbers, bit for bit."""
        chosen = {**self.named(dtype), **self.named(torch.int8)}
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


def fastest_kernel(seconds: Mapping[str, float]) -> str:
    """The fastest kernel, if it is clearly faster than torch's own."""
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < GAIN * seconds["plain"] else "plain"


DEFAULT = Choice("default")
_active = DEFAULT


def use(choice: Choice) -> None:
    """Use these kernels from now on, in the whole process, and state them in its provenance."""
    global _active
    _active = choice
    engines_state["kernels"] = {"origin": choice.origin, **choice.named()}


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Use these kernels inside the block, without stating them in the provenance."""
    global _active
    before = _active
    _active = choice
    try:
        yield
    finally:
        _active = before


def active() -> Choice:
    """The choice of this process."""
    return _active


def product_kernel(dtype: torch.dtype, rows: int) -> str:
    """The kernel of products with matrices of a type on a CPU."""
    few = Operation.ONE if rows == 1 else Operation.FEW
    return _active.kernel(dtype, few if rows <= MOST_ROWS else Operation.MANY)


def runs_fused(dtype: torch.dtype, tokens: int) -> bool:
    """Whether this many tokens pass all layers, with matrices of a type, in one compiled call on a
    CPU.
    """
    operation = Operation.STEP if tokens == 1 else Operation.STEPS
    return tokens <= MOST_ROWS and _active.kernel(dtype, operation) == COMPILED


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(token, in), (out, in) -> (token, out)."""
    name = "plain" if torch_only(weight) else product_kernel(weight.dtype, x.shape[0])
    return PRODUCTS[name](x, weight, bias)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scaled dot-product attention of queries (row, head, query, dim) over keys and values (row,
    kv_head, key, dim).

    Args:
        mask: (row, 1, query, key), true where attended; None: all, or the lower triangle where
            `causal`.
    """
    attended = compiled.attend(q, k, v, mask, causal) if _compiles(q, Operation.ATTENTION) else None
    return _sdpa(q, k, v, mask, causal) if attended is None else attended


def attend_gathered(
    q: Tensor, k: Slots, v: Slots, slots: Tensor, mask: Tensor | None
) -> Tensor | None:
    """`attend` over keys and values (kv_head, slot, dim) of which each row has its own slots (row,
    key), without gathering them; None where the chosen kernel does not do that.
    """
    if (
        not isinstance(k, Tensor)
        or not isinstance(v, Tensor)
        or not _compiles(q, Operation.ATTENTION)
    ):
        return None
    return compiled.attend(q, k[None], v[None], mask, slots=slots)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """(..., width), or (token, head, dim) under a weight of all heads together."""
    compiles = weight.dim() == 1 and _compiles(x, Operation.ROWS)
    return compiled.normed(x, weight, eps) if compiles else F.rms_norm(x, weight.shape, weight, eps)


def gate(inner: Tensor, activation: str) -> Tensor:
    """activation(gate) * value of a gated MLP: (token, gate then value) -> (token, unit)."""
    if activation == "silu" and _compiles(inner, Operation.ROWS):
        return compiled.gated(inner)
    gates, values = inner.chunk(2, -1)
    return ACTIVATIONS[activation](gates).mul_(values)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rope.rotate` of heads (token, head, dim), which may be overwritten."""
    compiles = x.stride(1) == x.shape[2] and _compiles(x, Operation.ROWS)
    return compiled.rotated(x, cos, sin) if compiles else rope.rotate(x, cos, sin)


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (token, vocab), targets (token,) -> the targets' log-probabilities (token,) in
    float32.
    """
    if _compiles(logits, Operation.LIKELIHOOD):
        return compiled.log_probabilities(logits, targets)
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def _compiles(tensor: Tensor, operation: Operation) -> bool:
    return not torch_only(tensor) and _active.kernel(tensor.dtype, operation) == COMPILED


def torch_only(tensor: Tensor) -> bool:
    """Whether torch's own kernels alone may run: on a GPU, for gradients, or in an export."""
    return tensor.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting()
