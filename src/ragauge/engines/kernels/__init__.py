"""Which kernel computes a product or an attention: measured on the machine at hand, or torch's own.

`project` is the product of every linear layer, `attend` every attention without a bias, `log_probabilities` what a text
is scored with. On a CPU, what is fastest
depends on the processor, the data type and the number of rows; `candidates` holds what there is, `measured` times them
once on a machine, and `use` takes a choice for this process. Results of the choices differ in rounding only. CUDA,
exports and gradients have torch's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.machine import engines_state
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.candidates import ATTENTIONS, COMPILED, COMPILED_INPUT, LIKELIHOODS, PRODUCTS
from ragauge.engines.kernels.choice import DEFAULT, Choice, Classes
from ragauge.engines.kernels.compiled import MOST_ROWS

__all__ = [
    "COMPILED",
    "COMPILED_INPUT",
    "DEFAULT",
    "active",
    "attend",
    "attend_gathered",
    "chosen",
    "in_one_call",
    "log_probabilities",
    "project",
    "use",
    "using",
]

_active = DEFAULT


def use(choice: Choice) -> None:
    """Take the kernels of a choice from now on, in the whole process; its provenance says so."""
    global _active
    _active = choice
    engines_state["kernels"] = {"origin": choice.origin, **choice.named()}


def active() -> Choice:
    """The choice of this process."""
    return _active


def chosen(dtype: torch.dtype, rows: int) -> str:
    """The kernel of products with matrices of a type on a CPU."""
    return _active.of(dtype, Classes.product(rows))


def in_one_call(dtype: torch.dtype, tokens: int) -> bool:
    """Whether so many tokens pass all layers, with matrices of this type, in one compiled call on a CPU."""
    return tokens <= MOST_ROWS and _active.of(dtype, Classes.passing(tokens)) == COMPILED


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Take the kernels of a choice for a while, of which no provenance says anything."""
    global _active
    before, _active = _active, choice
    try:
        yield
    finally:
        _active = before


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(token, in), (out, in) -> (token, out)."""
    name = "plain" if _torch_alone(weight) else chosen(weight.dtype, x.shape[0])
    if name == "plain":
        return F.linear(x, weight, bias)
    return PRODUCTS[name].run(x, weight, bias)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scaled dot-product attention of queries (row, head, query, dim) over keys and values (row, kv_head, key, dim).

    Args:
        mask: (row, 1, query, key), true where attended; None: all, or the lower triangle where `causal`.
    """
    name = "plain" if _torch_alone(q) else _active.of(q.dtype, Classes.attention(q.shape[2]))
    return ATTENTIONS[name].run(q, k, v, mask, causal)


def attend_gathered(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, mask: Tensor | None) -> Tensor | None:
    """`attend` over keys and values (kv_head, slot, dim) of which each row has its own slots (row, key), without
    gathering them; None where no kernel that was chosen does that.
    """
    if _torch_alone(q) or _active.of(q.dtype, Classes.attention(q.shape[2])) != COMPILED:
        return None
    return compiled.attend_gathered(q, k, v, slots, mask)


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (token, word), words (token,) -> the words' log-probabilities (token,) in float32."""
    name = "plain" if _torch_alone(logits) else _active.of(logits.dtype, Classes.LIKELIHOOD)
    return LIKELIHOODS[name].run(logits, targets)


def _torch_alone(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting()
