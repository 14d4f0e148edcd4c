"""Matrices in the blocks of a GGUF file as they stand there, on a CPU; see docs/engine.md.

A block has 32 or 256 numbers of a row in 4 to 8 bits and their scales. Nothing is rounded again:
each number is what dequantizing the file gives. Activations are rounded to 8 bits, with a scale for
as many as the largest blocks have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
AFFINE4, SUPER4, SUPER6, PLAIN8 = range(4)  # formats of `blocks.h`
PACKED_ROWS = 4096  # at a time, which bounds the memory of unpacking


@dataclass(frozen=True)
class BlockRows:
    """Rows of a tensor as the file has them: uint8 (row, byte)."""

    data: Bytes
    type: GGMLQuantizationType

    def values(self) -> Tensor:
        """The dequantized numbers (row, in) in float32."""
        return torch.from_numpy(gguf.dequantize(self.data, self.type))


@dataclass(frozen=True)
class Unpacked:
    """Blocks taken apart: a number is by * (scale * number) - plus * offset, or + plus."""

    numbers: Bytes  # (row, in), not negative
    by: Bytes  # float16 as bytes (row, block, 2)
    plus: Bytes | None = None
    scale: Bytes | None = None  # (row, 16 or 32 numbers)
    offset: Bytes | None = None


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
        integers, scale = quantize(x.view(len(x), -1, near))
        weight = torch.cat([part.values() for part in self.parts])
        y = ((integers * scale).view(x.shape) @ weight.t()).to(x.dtype)
        return y if self.bias is None else y + self.bias


def block_linear(parts: Sequence[BlockRows], bias: Tensor | None = None) -> BlockLinear:
    """Return a linear layer whose rows are those of the parts, one after another.

    Raises:
        UserError: a type of blocks that is not multiplied with as it is.
    """
    for part in parts:
        if part.type not in _UNPACK:
            known = ", ".join(kind.name for kind in _UNPACK)
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
    kind = GGMLQuantizationType.Q4_0
    if linear.weight.shape[1] % GGML_QUANT_SIZES[kind][0]:
        reason = f"{linear.weight.shape[1]} numbers a row; blocks have {GGML_QUANT_SIZES[kind][0]}"
        raise UserError(f"weights int4: {reason}")
    data = gguf.quantize(linear.weight.float().numpy(), kind)
    return block_linear([BlockRows(data, kind)], linear.bias)


class _BlocksArguments(ctypes.Structure):
    """Rows of one type; see `blocks.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("low", "high", "scale", "offset", "by", "plus")),
        ("rows", ctypes.c_int64),
        ("format", ctypes.c_int64),
    ]


def _matrix(parts: Sequence[BlockRows], width: int, bias: Tensor | None) -> Matrix:
    packed = [_packed(part) for part in parts]
    arguments = (_BlocksArguments * len(parts))()
    for argument, part, arrays in zip(arguments, parts, packed, strict=True):
        for name, values in arrays.items():
            setattr(argument, name, values.ctypes.data)
        argument.rows = len(part.data)
        argument.format = _FORMATS[part.type]
    bias = None if bias is None else bias.float().contiguous()
    pointer = None if bias is None else bias.data_ptr()
    out = sum(len(part.data) for part in parts)
    matrix = Matrix(ctypes.addressof(arguments), None, None, pointer, out, width, BLOCKS)
    matrix.tensors = (bias, packed, arguments)
    return matrix


def _packed(part: BlockRows) -> dict[str, Bytes]:
    """The arrays of `blocks.h`, by name: numbers of PANEL rows together."""
    below = -len(part.data) % PANEL
    data = np.pad(part.data, ((0, below), (0, 0))) if below else part.data
    pieces = [
        _packed_rows(_unpacked(data[start : start + PACKED_ROWS], part.type), part.type)
        for start in range(0, len(data), PACKED_ROWS)
    ]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _packed_rows(blocks: Unpacked, kind: GGMLQuantizationType) -> dict[str, Bytes]:
    """Each array has its panels first."""
    numbers = blocks.numbers
    by_panel = {
        "by": blocks.by,
        "plus": blocks.plus,
        "scale": blocks.scale,
        "offset": blocks.offset,
    }
    arrays = {
        name: np.ascontiguousarray(values.reshape(-1, PANEL, *values.shape[1:]).swapaxes(1, 2))
        for name, values in by_panel.items()
        if values is not None
    }
    if _FORMATS[kind] == PLAIN8:
        return {**arrays, "low": _fours(numbers.reshape(-1, PANEL, numbers.shape[1] // 4, 4))}
    eights = (numbers & 15).reshape(-1, PANEL, numbers.shape[1] // 8, 2, 4)
    arrays["low"] = _fours(eights[..., 0, :] | eights[..., 1, :] << 4)
    if _FORMATS[kind] == SUPER6:
        twos = (numbers >> 4).reshape(-1, PANEL, numbers.shape[1] // 16, 4, 4)
        shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        arrays["high"] = _fours(np.bitwise_or.reduce(twos << shifts, axis=-2))
    return arrays


def _fours(values: Bytes) -> Bytes:
    """(panel, row, group, 4) -> (panel, group, row, 4)."""
    return np.ascontiguousarray(values.swapaxes(1, 2))


def _unpacked(data: Bytes, kind: GGMLQuantizationType) -> Unpacked:
    """Take rows of blocks apart."""
    size = GGML_QUANT_SIZES[kind][1]
    blocks = np.ascontiguousarray(data).reshape(len(data), -1, size)
    return _UNPACK[kind](blocks)


def _halves(packed: Bytes) -> Bytes:
    """Bytes (row, block, n) -> their low halves, then their high halves (row, block, 2 n)."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _by_row(numbers: Bytes) -> Bytes:
    """(row, block, ...) -> (row, in)."""
    return numbers.reshape(len(numbers), -1)


def _q4_0(blocks: Bytes) -> Unpacked:
    by = blocks[..., :2]
    eight_less = (np.ascontiguousarray(by).view(np.float16) * np.float16(-8)).view(np.uint8)
    return Unpacked(_by_row(_halves(blocks[..., 2:])), by, eight_less)


def _q4_1(blocks: Bytes) -> Unpacked:
    return Unpacked(_by_row(_halves(blocks[..., 4:])), blocks[..., :2], blocks[..., 2:4])


def _q5_0(blocks: Bytes) -> Unpacked:
    fifth = np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
    numbers = _halves(blocks[..., 6:]) | fifth << 4
    return Unpacked(_by_row(numbers + np.uint8(128 - 16)), blocks[..., :2])


def _q8_0(blocks: Bytes) -> Unpacked:
    return Unpacked(_by_row(blocks[..., 2:] + np.uint8(128)), blocks[..., :2])


def _q4_k(blocks: Bytes) -> Unpacked:
    first, second, rest = np.split(blocks[..., 4:16], 3, axis=-1)
    scale = np.concatenate([first & 63, rest & 15 | first >> 2 & 48], axis=-1)
    offset = np.concatenate([second & 63, rest >> 4 | second >> 2 & 48], axis=-1)
    numbers = _halves(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32))
    small = _by_row(scale), _by_row(offset)
    return Unpacked(_by_row(numbers), blocks[..., :2], blocks[..., 2:4], *small)


def _q6_k(blocks: Bytes) -> Unpacked:
    low = _halves(blocks[..., :128].reshape(*blocks.shape[:2], 2, 64))
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32) >> shifts & 3
    numbers = low | high.reshape(low.shape) << 4
    return Unpacked(_by_row(numbers), blocks[..., 208:], scale=_by_row(blocks[..., 192:208]))


_UNPACK: dict[GGMLQuantizationType, Callable[[Bytes], Unpacked]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q4_K: _q4_k,
    GGMLQuantizationType.Q5_0: _q5_0,
    GGMLQuantizationType.Q6_K: _q6_k,
    GGMLQuantizationType.Q8_0: _q8_0,
}
_FORMATS = {
    GGMLQuantizationType.Q4_0: AFFINE4,
    GGMLQuantizationType.Q4_1: AFFINE4,
    GGMLQuantizationType.Q4_K: SUPER4,
    GGMLQuantizationType.Q5_0: PLAIN8,
    GGMLQuantizationType.Q6_K: SUPER6,
    GGMLQuantizationType.Q8_0: PLAIN8,
}
