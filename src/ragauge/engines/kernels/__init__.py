"""The kernels of products, attentions and log-probabilities: those measured to be fastest here, or torch's own.

`project` is the product of every linear layer, `attend` every attention without a bias, `log_probabilities` what a text
is scored with. On a CPU, what is fastest depends on the processor, the data type and the number of rows: `candidates`
lists the kernels, `engines/tuning.py` times them once on a machine, and `use` sets a choice for this process. Choices
differ in rounding only. CUDA, exports and gradients use torch's own kernels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.machine import engines_state
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.candidates import ATTENTIONS, COMPILED, LIKELIHOODS, PRODUCTS, Operation
from ragauge.engines.kernels.compiled import MOST_ROWS
from ragauge.engines.quantization import Slots

Table = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""dtype -> operation -> `kernel`, and `seconds` of each candidate."""


@dataclass(frozen=True)
class Choice:
    """The kernels that a process uses; torch's own for what the table does not list."""

    origin: str  # default, measured, or a file
    table: Table = field(default_factory=dict)
    _kernels: dict[tuple[torch.dtype, str], str] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for dtype, rows in self.table.items():
            self._kernels.update({(getattr(torch, dtype), operation): row["kernel"] for operation, row in rows.items()})

    def kernel(self, dtype: torch.dtype, operation: str) -> str:
        """The name of the kernel."""
        return self._kernels.get((dtype, operation), "plain")

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
    before, _active = _active, choice
    try:
        yield
    finally:
        _active = before


def active() -> Choice:
    """The choice of this process."""
    return _active


def product_kernel(dtype: torch.dtype, rows: int) -> str:
    """The kernel of products with matrices of a type on a CPU."""
    return _active.kernel(dtype, Operation.product(rows))


def runs_fused(dtype: torch.dtype, tokens: int) -> bool:
    """Whether this many tokens pass all layers, with matrices of a type, in one compiled call on a CPU."""
    return tokens <= MOST_ROWS and _active.kernel(dtype, Operation.layers(tokens)) == COMPILED


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(token, in), (out, in) -> (token, out)."""
    name = "plain" if _torch_only(weight) else product_kernel(weight.dtype, x.shape[0])
    return PRODUCTS[name](x, weight, bias)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scaled dot-product attention of queries (row, head, query, dim) over keys and values (row, kv_head, key, dim).

    Args:
        mask: (row, 1, query, key), true where attended; None: all, or the lower triangle where `causal`.
    """
    name = "plain" if _torch_only(q) else _active.kernel(q.dtype, Operation.ATTENTION)
    return ATTENTIONS[name](q, k, v, mask, causal)


def attend_gathered(q: Tensor, k: Slots, v: Slots, slots: Tensor, mask: Tensor | None) -> Tensor | None:
    """`attend` over keys and values (kv_head, slot, dim) of which each row has its own slots (row, key), without
    gathering them; None where the chosen kernel does not do that.
    """
    if not isinstance(k, Tensor) or not isinstance(v, Tensor):
        return None
    if _torch_only(q) or _active.kernel(q.dtype, Operation.ATTENTION) != COMPILED:
        return None
    return compiled.attend_gathered(q, k, v, slots, mask)


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (token, vocab), targets (token,) -> the targets' log-probabilities (token,) in float32."""
    name = "plain" if _torch_only(logits) else _active.kernel(logits.dtype, Operation.LIKELIHOOD)
    return LIKELIHOODS[name](logits, targets)


def _torch_only(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting()
