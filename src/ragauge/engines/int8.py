"""Matrices of 8-bit integers in place of floating-point ones, on a CPU; see docs/engine.md.

A matrix W (out, in) is stored as q = round(W / s), the scale s of each row its largest magnitude
over 127. Activations have a scale for each token, so that a token's result does not depend on which
tokens it is batched with.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from ragauge.engines.kernels import choice, compiled
from ragauge.engines.kernels.choice import COMPILED
from ragauge.engines.kernels.compiled import MOST_ROWS, ZERO_POINT, Matrix
from ragauge.engines.quantization import MAX_INT8, MIN_MAGNITUDE, quantize
from ragauge.engines.weights import Linear
from ragauge.errors import UserError

QUANTIZED_ROWS = 2048  # at a time, for which quantizing takes copies in fp32
# one number of tokens for each operation that kernels are chosen for
SIZES = (1, MOST_ROWS, MOST_ROWS + 1)


def linear_storage(weights: str, device: torch.device) -> Callable[[Linear], Linear]:
    """A function that turns a layer in floating point or of `quantized_rows` into a stored one.

    Args:
        weights: One of `cost.hardware.WEIGHTS`.
        device: Where the layer is.

    Raises:
        UserError: Weights in fewer bits on a device other than a CPU.
    """
    if weights == "full":
        return lambda linear: linear
    if device.type != "cpu":
        raise UserError(
            f"weights {weights!r} are not available on device {device.type!r}; known there: full"
        )
    if weights == "int4":
        from ragauge.engines.blocks import drawn_blocks

        return drawn_blocks
    return int8


@dataclass(frozen=True, kw_only=True)
class Int8Linear(Linear):
    """Integers times integers: weights scaled by row, activations by token.

    Stored in the panels of `compiled.c`, in a layout of torch, or in both, as the kernels for few
    and many tokens are.
    """

    scale: Tensor  # (out,), fp32
    layout: str = "rows"  # of `weight`: rows (out, in); onednn (in, out); or those of `panels`
    panels: Matrix | None = None  # as `compiled.c` multiplies with it, where that is faster

    def for_compiled(self) -> Matrix | None:
        return self.panels

    def __call__(self, x: Tensor) -> Tensor:
        """(token, in) -> (token, out)."""
        kernel = choice.product_kernel(torch.int8, x.shape[0])
        if self.panels is not None and (self.layout == "panels" or kernel == COMPILED):
            return compiled.multiply(self.panels, x)
        if self.layout == "onednn" and kernel == "onednn" and x.dtype in compiled.KINDS:
            integers, scale = compiled.quantized(x)
            y = compiled.scale_(_multiply_packed(integers, self.weight, self.scale, x.dtype), scale)
            return y if self.bias is None else y + self.bias
        return self.by_torch(x)

    def by_torch(self, x: Tensor) -> Tensor:
        """The same by torch's operators, whatever the kernels of this process are."""
        # of each token
        scale = x.abs().amax(1, keepdim=True).float().clamp_min_(MIN_MAGNITUDE).mul_(1 / MAX_INT8)
        if self.layout == "onednn":
            # unsigned, ZERO_POINT above the value; all of them are positive, so that this rounds
            integers = (x * scale.reciprocal()).add_(ZERO_POINT + 0.5).to(torch.uint8)
            # float16 could overflow before tokens are scaled
            dtype = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32
            y = _multiply_packed(integers, self.weight, self.scale, dtype).mul_(scale).to(x.dtype)
        else:
            integers = (x * scale.reciprocal()).round_().to(torch.int8)
            w = self.weight.t()
            products = torch._int_mm(integers, w) if _has_int_mm() else integers.float() @ w.float()
            y = products.float().mul_(self.scale).mul_(scale).to(x.dtype)
        return y if self.bias is None else y + self.bias


def quantized_rows(linear: Linear) -> Int8Linear:
    """A linear layer with its weights in 8 bits and a scale for each row, in no kernel's layout
    yet.
    """
    if isinstance(linear, Int8Linear):
        return linear
    parts = [quantize(rows) for rows in linear.weight.split(QUANTIZED_ROWS)]
    weight, scale = (torch.cat(part) for part in zip(*parts, strict=True))
    return Int8Linear(weight, linear.bias, scale=scale[:, 0].contiguous())


def int8(linear: Linear) -> Int8Linear:
    """A linear layer with weights in 8 bits, for activations in 8 bits."""
    rows = quantized_rows(linear)
    by_compiled = [choice.product_kernel(torch.int8, tokens) == COMPILED for tokens in SIZES]
    fused = [choice.runs_fused(torch.int8, tokens) for tokens in SIZES]
    if any(by_compiled + fused):
        rows = replace(rows, panels=Matrix.of(rows.weight, rows.bias, rows.scale))
    if rows.panels is not None and all(by_compiled):
        integers = rows.panels.tensors[0]
        assert integers is not None
        return replace(rows, weight=integers, layout="panels")
    return replace(rows, weight=_pack(rows.weight), layout="onednn") if has_onednn() else rows


@cache
def has_onednn() -> bool:
    """Whether oneDNN's product is here, and exact: without 8-bit dot products, processors saturate
    sums of two.
    """

    def product(q: Tensor, w: Tensor) -> Tensor:
        return _multiply_packed(
            (q.int() + ZERO_POINT).to(torch.uint8), _pack(w), torch.ones(len(w))
        )

    return _is_exact(product)


@cache
def _has_int_mm() -> bool:
    return _is_exact(lambda q, w: torch._int_mm(q, w.t()).float())


def _is_exact(product: Callable[[Tensor, Tensor], Tensor]) -> bool:
    q = torch.full((3, 64), MAX_INT8, dtype=torch.int8)
    w = torch.full((32, 64), MAX_INT8, dtype=torch.int8)
    w[::2] *= -1
    try:
        return torch.equal(product(q, w), q.float() @ w.float().t())
    except (RuntimeError, AttributeError):
        return False


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_prepack(weight, None)


def _multiply_packed(
    integers: Tensor, packed: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """(token, in) unsigned, ZERO_POINT above the value -> (token, out), scaled by row."""
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    multiply = torch.ops.onednn.qlinear_pointwise
    return multiply(
        integers, 1.0, ZERO_POINT, packed, scale, zeros, None, 1.0, 0, dtype, "none", [], ""
    )
