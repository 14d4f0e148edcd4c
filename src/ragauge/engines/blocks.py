"""Matrices in the blocks of a GGUF file as they stand there, on a CPU; see docs/engine.md.

A block has 32 or 256 numbers of a row in 4 to 8 bits and their scales. Nothing is rounded again:
each number is what dequantizing the file gives. Activations are rounded to 8 bits, with a scale for
as many as the largest blocks have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.compiled import BLOCKS, PANEL, Matrix
from ragauge.engines.quantization import quantize
from ragauge.engines.weights import Linear
from ragauge.errors import UserError

Type: Any = GGMLQuantizationType
# A block as a structure of numpy's, with the fields of `blocks.h`; in the order of its types.
FIELDS: dict[Any, list[tuple[str, str]]] = {
    Type.Q4_0: [("by", "u2"), ("low", "4u4")],
    Type.Q4_1: [("by", "u2"), ("plus", "u2"), ("low", "4u4")],
    Type.Q5_0: [("by", "u2"), ("high", "u4"), ("low", "4u4")],
    Type.Q8_0: [("by", "u2"), ("low", "8u4")],
    Type.Q4_K: [("by", "u2"), ("plus", "u2"), ("scale", "3u4"), ("low", "32u4")],
    Type.Q6_K: [("low", "32u4"), ("high", "16u4"), ("scale", "16u1"), ("by", "u2")],
}


@dataclass(frozen=True)
class BlockRows:
    """Rows of a tensor as the file has them: uint8 (row, byte)."""

    data: np.ndarray
    type: Any  # of gguf.GGMLQuantizationType

    def values(self) -> Tensor:
        """The dequantized numbers (row, in) in float32."""
        return torch.from_numpy(gguf.dequantize(self.data, self.type))


@dataclass(frozen=True, kw_only=True)
class BlockLinear(Linear):
    """A linear layer of blocks; parts of its rows may have different types."""

    parts: tuple[BlockRows, ...]
    panels: Matrix | None = field(compare=False)  # None without a C compiler

    def for_compiled(self) -> Matrix | None:
        return self.panels

    def __call__(self, x: Tensor) -> Tensor:
        """(token, in) -> (token, out)."""
        return self.by_torch(x) if self.panels is None else compiled.multiply(self.panels, x)

    def by_torch(self, x: Tensor) -> Tensor:
        """The same by torch's operators, which dequantizes the matrix every time."""
        near = 32 if x.shape[1] % 256 else 256
        integers, scale = quantize(x.reshape(len(x), -1, near))
        weight = torch.cat([part.values() for part in self.parts])
        y = ((integers * scale).reshape(x.shape) @ weight.t()).to(x.dtype)
        return y if self.bias is None else y + self.bias


def block_linear(parts: Sequence[BlockRows], bias: Tensor | None = None) -> BlockLinear:
    """Return a linear layer whose rows are those of the parts, one after another.

    Raises:
        UserError: a type of blocks that is not multiplied with as it is.
    """
    for part in parts:
        if part.type not in FIELDS:
            known = ", ".join(kind.name for kind in FIELDS)
            raise UserError(
                f"weights int4: blocks of type {part.type.name} are not read; read: {known}"
            )
    for part in parts[:-1]:
        if len(part.data) % PANEL:
            raise UserError(f"weights int4: {len(part.data)} rows; must be a multiple of {PANEL}")
    numbers, size = GGML_QUANT_SIZES[parts[0].type]
    width = parts[0].data.shape[1] // size * numbers
    rows = sum(len(part.data) for part in parts)
    stand_in = torch.empty(rows, width, dtype=torch.uint8, device="meta")
    panels = None if compiled.library() is None else _matrix(parts, width, bias)
    return BlockLinear(stand_in, bias, parts=tuple(parts), panels=panels)


def drawn_blocks(linear: Linear) -> BlockLinear:
    """Return a layer of random weights in blocks of 4 bits.

    Raises:
        UserError: its rows are no whole blocks.
    """
    kind = Type.Q4_0
    if linear.weight.shape[1] % GGML_QUANT_SIZES[kind][0]:
        reason = f"{linear.weight.shape[1]} numbers a row; blocks have {GGML_QUANT_SIZES[kind][0]}"
        raise UserError(f"weights int4: {reason}")
    data = gguf.quantize(linear.weight.float().numpy(), kind)
    return block_linear([BlockRows(data, kind)], linear.bias)


class _BlocksArguments(ctypes.Structure):
    """Rows of one type; see `blocks.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("low", "high", "scale", "by", "plus")),
        ("rows", ctypes.c_int64),
        ("format", ctypes.c_int64),
    ]


def _matrix(parts: Sequence[BlockRows], width: int, bias: Tensor | None) -> Matrix:
    packed = [_fields(part) for part in parts]
    arguments = (_BlocksArguments * len(parts))()
    for argument, part, arrays in zip(arguments, parts, packed, strict=True):
        for name, values in arrays.items():
            setattr(argument, name, values.ctypes.data)
        argument.rows = len(part.data)
        argument.format = list(FIELDS).index(part.type)
    bias = None if bias is None else bias.float().contiguous()
    pointer = None if bias is None else bias.data_ptr()
    out = sum(len(part.data) for part in parts)
    matrix = Matrix(ctypes.addressof(arguments), None, None, pointer, out, width, BLOCKS)
    matrix.tensors = (bias, packed, arguments)
    return matrix


def _fields(part: BlockRows) -> dict[str, np.ndarray]:
    """Each field of the blocks by itself, the rows of a panel together: (panel, block, word, PANEL)."""
    below = -len(part.data) % PANEL
    data = np.pad(part.data, ((0, below), (0, 0))) if below else part.data
    blocks = np.ascontiguousarray(data).view(FIELDS[part.type])
    fields = {}
    for name, _ in FIELDS[part.type]:
        words = blocks[name].reshape(len(data) // PANEL, PANEL, blocks.shape[1], -1)
        fields[name] = np.ascontiguousarray(words.transpose(0, 2, 3, 1))
    return fields
