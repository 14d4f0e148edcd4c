"""Matrices of 8-bit integers in place of floating-point ones, multiplied by torch's own operators on a CPU.

A matrix W (out, in) is kept as q = round(W / s) with a scale s for each of its rows (output channels), the row's
largest magnitude over 127. Two ways of multiplying with it have the call interface of `decoder.Linear`:

- `Int8Linear` (W8A8): every token's activations are rounded to 8 bits with a scale of their own, and integers are
  multiplied exactly. A token's result does not depend on which tokens it is batched with. (torch's
  `quantized.linear_dynamic` has one scale for all tokens of a call, so there it does.)
- `Int8WeightOnly`: activations stay floating-point numbers.

The embedding that tokens are looked up in stays as it is; where the output matrix is tied to it, that is a matrix of
its own in 8 bits. Norms and biases stay as they are, too. Where `compiled.c` was measured to be fastest,
`Int8Linear` holds its integers in the panels that it reads; where that is for some numbers of tokens only, in oneDNN's
layout as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ragauge.cost.hardware import WEIGHTS
from ragauge.engines import kernels
from ragauge.engines.decoder import Linear
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.compiled import Matrix
from ragauge.engines.rounding import LARGEST, LEAST, rounded
from ragauge.errors import UserError, unknown

FEW_TOKENS = 32  # beyond them, converting a matrix once costs less than multiplying with its integers
VECTOR = 32  # elements of a row that torch's weight-only product reads at one time; it reads no part of a vector

Keep = Callable[[Linear], Linear]
Rounding = Callable[[Tensor], tuple[Tensor, Tensor]]


def keeper(weights: str, device: torch.device) -> Keep:
    """How linear layers are kept that a checkpoint has in floating point, by a model's option `weights`.

    Raises:
        UserError: an unknown value, or 8-bit weights on a device other than a CPU.
    """
    ways: dict[str, Keep] = {"full": lambda linear: linear, "int8": int8, "int8_weight_only": int8_weight_only}
    if weights not in ways:
        raise unknown("weights", weights, WEIGHTS)
    if weights != "full" and device.type != "cpu":
        raise UserError(f"weights {weights!r} are not available on device {device.type!r}; known there: full")
    return ways[weights]


@dataclass(frozen=True, kw_only=True)
class Int8Linear(Linear):
    """Integers times integers: weights scaled by row, activations by token."""

    scale: Tensor  # (out,), fp32
    packed: bool = False  # `weight` is in oneDNN's own layout, whose size reads (in, out)
    panels: Matrix | None = None  # as `compiled.c` multiplies with it, where that is faster
    alone: bool = False  # `weight` is that of `panels`

    @property
    def size(self) -> tuple[int, ...]:
        if self.panels is not None:
            return (self.panels.out, self.panels.width)
        return tuple(self.weight.shape[::-1] if self.packed else self.weight.shape)

    def __call__(self, x: Tensor) -> Tensor:
        """(token, in) -> (token, out)."""
        name = kernels.chosen(torch.int8, x.shape[0])
        if self.panels is not None and (self.alone or name == kernels.COMPILED):
            return compiled.multiply(self.panels, x)
        return self.many(x, compiled.quantised if name == kernels.COMPILED_INPUT else quantised)

    def many(self, x: Tensor, rounding: Rounding | None = None) -> Tensor:
        """The same by torch's product, whatever the kernels of this process are.

        Args:
            rounding: of activations in float32 for oneDNN's product.
        """
        if self.packed:
            moved, scale = (rounding if rounding and x.dtype == torch.float32 else quantised)(x)
            y = _multiply_packed(moved, self.weight, self.scale, _half(x.dtype)).mul_(scale).to(x.dtype)
        else:
            y = self._plain(x, _scale(x))
        return y if self.bias is None else y + self.bias

    @property
    def kept(self) -> torch.dtype:
        """See `Linear`."""
        return torch.int8

    def compiled(self) -> Matrix | None:
        """See `Linear`."""
        return self.panels

    def in_parts(self, rows: int) -> Sequence[Linear]:
        """See `Linear`: in one, since kernels lay the whole matrix out."""
        return [self]

    def _plain(self, x: Tensor, scale: Tensor) -> Tensor:
        q = (x * scale.reciprocal()).round_().to(torch.int8)
        return _multiply_plain(q, self.weight).mul_(self.scale).mul_(scale).to(x.dtype)


@dataclass(frozen=True, kw_only=True)
class Int8WeightOnly(Linear):
    """Floating-point activations times integers scaled by row.

    Few tokens are multiplied in bfloat16 (in float16 where that is the decoder's type) with fp32 sums; for many the
    matrix is converted to their type.
    """

    scale: Tensor  # (out,), fp32

    def in_parts(self, rows: int) -> Sequence[Linear]:
        """See `Linear`."""
        return [self]

    def __call__(self, x: Tensor) -> Tensor:
        """(token, in) -> (token, out)."""
        if x.shape[0] <= FEW_TOKENS and self.weight.shape[1] % VECTOR == 0 and self.weight.shape[0] % VECTOR == 0:
            dtype = torch.bfloat16 if x.dtype == torch.float32 else x.dtype
            y = torch._weight_int8pack_mm(x.to(dtype), self.weight, self.scale.to(dtype)).to(x.dtype)
        else:
            y = kernels.project(x, self.weight.to(x.dtype)) * self.scale.to(x.dtype)
        return y if self.bias is None else y + self.bias

    def compiled(self) -> Matrix | None:
        """See `Linear`: none, as its activations stay floating-point numbers."""
        return None


def int8(linear: Linear, both: bool = False) -> Int8Linear:
    """A linear layer with its weights in 8 bits, for activations in 8 bits.

    Args:
        both: keep them as torch and as `compiled.c` takes them, whatever the kernels of this process are.
    """
    weight, scale = rounded(linear.weight)
    scale, ours, theirs = scale[:, 0].contiguous(), both or _compiles(), both or _operates()
    panels = compiled.Matrix.of(weight, linear.bias, scale) if ours else None
    if panels is not None and panels.held[0] is not None and not theirs:
        return Int8Linear(panels.held[0], linear.bias, scale=scale, panels=panels, alone=True)
    packed = packs()
    return Int8Linear(_pack(weight) if packed else weight, linear.bias, scale=scale, packed=packed, panels=panels)


SIZES = (1, compiled.MOST_ROWS, compiled.MOST_ROWS + 1)  # of each class of products, the most tokens or the least


def _compiles() -> bool:
    """Whether `compiled.c` multiplies with a matrix for any number of tokens."""
    return any(_chosen(tokens) == kernels.COMPILED or kernels.in_one_call(torch.int8, tokens) for tokens in SIZES)


def _operates() -> bool:
    """Whether torch does."""
    return any(_chosen(tokens) != kernels.COMPILED for tokens in SIZES)


def _chosen(tokens: int) -> str:
    return kernels.chosen(torch.int8, tokens)


def int8_weight_only(linear: Linear) -> Int8WeightOnly:
    """A linear layer with its weights in 8 bits, for activations as they are."""
    weight, scale = rounded(linear.weight)
    return Int8WeightOnly(weight, linear.bias, scale=scale[:, 0])


# --- products of integers ---

ZERO = 128  # what stands for 0 among unsigned activations, which processors multiply with signed weights


@cache
def packs() -> bool:
    """Whether oneDNN's product is here, and exact: without 8-bit dot products, processors saturate sums of two."""
    try:
        return _exact(lambda q, w: _multiply_packed((q.int() + ZERO).to(torch.uint8), _pack(w), torch.ones(len(w))))
    except (RuntimeError, AttributeError):
        return False


@cache
def multiplies() -> bool:
    """The same of torch's own product."""
    try:
        return _exact(lambda q, w: torch._int_mm(q, w.t()).float())
    except RuntimeError:
        return False


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (token, in) -> unsigned integers ZERO above what is meant, and fp32 scales (token, 1)."""
    scale = _scale(x)
    return (x * scale.reciprocal()).add_(ZERO + 0.5).to(torch.uint8), scale  # rounds: all of them are positive


def _scale(x: Tensor) -> Tensor:
    return x.abs().amax(1, keepdim=True).float().clamp_min_(LEAST).mul_(1 / LARGEST)


def _exact(product: Callable[[Tensor, Tensor], Tensor]) -> bool:
    q, w = torch.full((3, 64), LARGEST, dtype=torch.int8), torch.full((32, 64), LARGEST, dtype=torch.int8)
    w[::2] *= -1
    return torch.equal(product(q, w), q.float() @ w.float().t())


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.onednn.qlinear_prepack(weight, None)
    return packed


def _multiply_packed(moved: Tensor, packed: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(token, in) unsigned, ZERO above the integers that are meant -> (token, out), scaled by row."""
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    multiply = torch.ops.onednn.qlinear_pointwise
    product: Tensor = multiply(moved, 1.0, ZERO, packed, scale, zeros, None, 1.0, 0, dtype, "none", [], "")
    return product


def _multiply_plain(q: Tensor, weight: Tensor) -> Tensor:
    """(token, in), (out, in), 8-bit integers -> (token, out) in fp32, not scaled."""
    return torch._int_mm(q, weight.t()).float() if multiplies() else q.float() @ weight.float().t()


def _half(dtype: torch.dtype) -> torch.dtype:
    """What a product for activations of this type is stored in: float16 could overflow before tokens are scaled."""
    return dtype if dtype == torch.bfloat16 else torch.float32
