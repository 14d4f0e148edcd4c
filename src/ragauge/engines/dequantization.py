"""Quantised checkpoints: the floating-point weights that their numbers and scales stand for, or a
refusal by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragauge.engines.families._parts import Config
from ragauge.errors import UserError

Reader = Callable[[], Tensor]
# the name of a weight's scales by method; what is multiplied out is the weight alone, never
# activations
SCALES = {
    "fp8": "weight_scale_inv",
    "fbgemm_fp8": "weight_scale",
    "bitsandbytes": "SCB",
    "compressed-tensors": "weight_scale",
}
# of compressed-tensors
FORMATS = ("naive-quantized", "float-quantized", "int-quantized", "pack-quantized")
READ = f"{', '.join(SCALES)} (bitsandbytes in 8 bits; compressed-tensors as {', '.join(FORMATS)})"
ADVICE = "take the model without quantization, as a GGUF file, or from a server (openai:NAME)"
# stored next to the scales
PARTS = ("weight", "weight_packed", "weight_shape", "weight_zero_point", "weight_format")
# Scales of activations and of keys and values, which are not quantised here.
RUNTIME = (
    "activation_scale",
    "input_scale",
    "input_scale_ub",
    "input_zero_point",
    "k_scale",
    "v_scale",
)
FILES = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}


@dataclass(frozen=True)
class Quantization:
    """How the matrices of a checkpoint are stored."""

    method: str
    bits: int = 8
    # rows and columns of a weight that share a scale; None: from their numbers
    block: tuple[int, ...] | None = None
    packed: bool = False  # several numbers in an int32


def quantization(folder: Path, config: Config) -> Quantization | None:
    """How a checkpoint is quantised; None if it is not. Raises UserError for a method or a form
    that is not read.
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    path = folder / "config.json"
    if not stated:
        for name, method in FILES.items():
            if (folder / name).is_file():
                raise _refusal(folder / name, method)
        return None
    if not isinstance(stated, dict):
        raise UserError(f"{path}: quantization_config: must be an object, not {str(stated)[:40]!r}")
    default = "bitsandbytes" if "load_in_8bit" in stated else "unnamed"
    method = str(stated.get("quant_method") or default)
    if method == "compressed-tensors":
        return _compressed_tensors(path, stated)
    if method == "bitsandbytes" and not stated.get("load_in_8bit"):
        method = "bitsandbytes in 4 bits"
    if method not in SCALES:
        raise _refusal(path, method)
    block = stated.get("weight_block_size") if method == "fp8" else None
    return Quantization(method, block=tuple(map(int, block)) if block else None)


def _refusal(path: Path, method: str) -> UserError:
    return UserError(
        f"{path}: weights quantized by {method} are not read; read are {READ}; {ADVICE}"
    )


def _compressed_tensors(path: Path, stated: Mapping[str, Any]) -> Quantization:
    """See `quantization`; all groups of layers must be stored alike."""
    default = str(stated.get("format"))
    groups = list((stated.get("config_groups") or {"": {}}).values())
    formats = sorted({str(group.get("format") or default) for group in groups})
    if len(formats) > 1 or formats[0] not in FORMATS:
        raise _refusal(path, f"compressed-tensors as {' and '.join(formats)}")
    status = stated.get("quantization_status", "compressed")
    sparsity = (stated.get("sparsity_config") or {}).get("format", "dense")
    if (status, sparsity) != ("compressed", "dense"):
        raise _refusal(path, f"compressed-tensors, {status}, sparse as {sparsity}")
    weights = [group.get("weights") or {} for group in groups]
    bits = {int(group.get("num_bits", 8)) for group in weights}
    packed = formats == ["pack-quantized"]
    blocks = {tuple(map(int, group.get("block_structure") or ())) for group in weights}
    if len(blocks) > 1 or (packed and bits not in ({4}, {8})):
        raise _refusal(
            path,
            "compressed-tensors in groups of different blocks, or packed in other than 4 or 8 bits",
        )
    return Quantization("compressed-tensors", max(bits), blocks.pop() or None, packed)


def dequantized(
    kind: Quantization | None, readers: Mapping[str, Reader], folder: Path
) -> dict[str, Reader]:
    """The tensors of a checkpoint by name, in floating point: a weight's scales are multiplied in
    and not listed. Reading one raises UserError if its scales are missing or do not fit.
    """

    def read(name: str, get: Reader) -> Tensor:
        tensor = get()
        if not tensor.is_floating_point() or (kind and tensor.element_size() == 1):
            reason = (
                f"no {SCALES[kind.method]!r} next to it"
                if kind
                else "config.json states no quantization"
            )
            raise UserError(f"{folder}: tensor {name!r} is of {tensor.dtype} and {reason}")
        return tensor

    plain: dict[str, Reader] = {name: partial(read, name, get) for name, get in readers.items()}
    if kind is None:
        return plain
    for name in readers:
        base, _, last = name.rpartition(".")
        if last in RUNTIME:
            plain.pop(name, None)
        elif last == SCALES[kind.method]:
            parts = {}
            for part in (*PARTS, last):
                if plain.pop(f"{base}.{part}", None):
                    parts[part] = readers[f"{base}.{part}"]
            weight = f"{base}.weight"
            plain[weight] = partial(_dequantize, kind, f"{folder}: tensor {weight!r}", parts)
    return plain


def _dequantize(kind: Quantization, place: str, parts: Mapping[str, Reader]) -> Tensor:
    """(numbers - zero point) * scale, in fp32."""
    scale = parts[SCALES[kind.method]]().float()
    order = int(parts["weight_format"]()) if "weight_format" in parts else 0
    if order != 0:
        raise UserError(
            f"{place}: rows are in the order {order} of bitsandbytes; read is 0, as they are"
        )
    stored = "weight_packed" if kind.packed else "weight"
    if stored not in parts:
        raise UserError(f"{place}: no {stored!r} next to its scales")
    numbers = parts[stored]()
    if kind.packed:
        rows, columns = (int(size) for size in parts["weight_shape"]())
        numbers = _unpacked(numbers, kind.bits)[:rows, :columns]
    numbers = numbers.float()
    spread = partial(_spread, size=numbers.shape, block=kind.block, place=place)
    if "weight_zero_point" in parts:
        zero = parts["weight_zero_point"]()
        if zero.dtype == torch.int32 and kind.packed:
            zero = _unpacked(zero.T, kind.bits).T[: scale.shape[0]]
        numbers = numbers - spread(zero.float())
    return numbers * spread(scale / 127 if kind.method == "bitsandbytes" else scale)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Numbers of 4 or 8 bits, the lowest first in each int32 of a row, without the offset that made
    them positive.
    """
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    numbers = (packed[..., None] >> shifts) & (2**bits - 1)
    return numbers.flatten(-2) - 2 ** (bits - 1)


def _spread(scale: Tensor, size: torch.Size, block: tuple[int, ...] | None, place: str) -> Tensor:
    """Scales of a tensor, of rows, or of blocks -> one for each number, or of a size that
    broadcasts to them.
    """
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    scale = scale[:, None] if scale.ndim == 1 else scale
    for axis in (0, 1):
        count = scale.shape[axis]
        numbers = size[axis]
        step = block[axis] if block else max(1, numbers // count)
        if -(-numbers // step) == count:
            scale = scale.repeat_interleave(step, axis).narrow(axis, 0, numbers)
        elif count != 1:
            raise UserError(
                f"{place}: {tuple(scale.shape)} scales do not fit {tuple(size)} numbers"
            )
    return scale
