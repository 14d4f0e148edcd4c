"""Which matrix product kernel is used: the only processor-specific code.

`project` is the product of every linear layer; `for_decoding` wraps single-token steps. Results of the choices differ
in rounding only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.machine import cpu_model


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(token, in), (out, in) -> (token, out).

    One token on a CPU is bound by memory, and which of torch's products reads a matrix fastest depends on the CPU.
    """
    if not torch.compiler.is_exporting() and x.shape[0] == 1 and weight.device.type == "cpu":
        if weight.dtype == torch.bfloat16 and on_intel():
            return _by_vector(x, weight, bias)
        if weight.dtype == torch.float32 and not on_intel():
            return _in_parts(x, weight, bias)
    return F.linear(x, weight, bias)


@contextmanager
def for_decoding(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Multiply half-precision matrices with one token by torch's own kernels on a CPU.

    oneDNN, which torch prefers and which is right for many tokens, takes 2 to 3 times as long for one; but not in
    bfloat16 on Intel's processors, where a vector product by oneDNN is the faster one.
    """
    if device.type != "cpu" or dtype == torch.float32 or (dtype == torch.bfloat16 and on_intel()):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # setting the flag warns about GPUs that are not there
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@cache
def on_intel() -> bool:
    """Whether the processor is Intel's, whose library multiplies a vector in fp32 with all threads."""
    return cpu_model().startswith("Intel")


def _by_vector(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A matrix-vector product: never slower there than a matrix product with one row, and often faster."""
    product = torch.mv(weight, x[0]) if bias is None else torch.addmv(bias, weight, x[0])
    return product[None]


def _in_parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The rows in parts, side by side: on other processors one product reads the whole matrix with one thread."""
    parts = math.gcd(weight.shape[0], 2 * torch.get_num_threads())
    rows = weight.view(parts, -1, weight.shape[1])
    product = torch.bmm(rows, x.t().expand(parts, -1, 1)).view(1, -1)
    return product if bias is None else product + bias
