"""The C files of this folder, compiled once on a machine with a C compiler and stored with the
assets.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.assets import store
from ragauge.cost.machine import cpu_model
from ragauge.errors import UserError
from ragauge.io.files import file_sha256, locked, write_file

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
SOURCES = ("compiled.c", "attention.c", "blocks.c")
HEADERS = ("vectors.h", "blocks.h")
COMPILERS = ("cc", "gcc", "clang")
OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp")
LIMIT_S = 120.0  # of a compilation
# beyond them a matrix product is bound by arithmetic, which torch's libraries do better
MOST_ROWS = 16
LEAST_QUERIES = 17  # of an attention: for fewer, keys are not worth laying out anew
LEAST_GATHERED = 4  # the same where keys would be gathered before
LANES = 16  # heads are of whole vectors
MOST_DIM = 256  # of a head

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
BLOCKS = 3  # a matrix's kind: numbers of a few bits with scales, see `blocks.h`
# represents 0 among unsigned activations, which processors multiply with signed weights
ZERO_POINT = 128
PANEL = 16  # rows of 8-bit integers that stand together
FLOATS = (torch.float32, torch.bfloat16)

TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float}
# the arguments of each function, without the number of threads at the end
SIGNATURES = {
    "product": "pppn",
    "product_many": "pppnn",
    "quantised": "pppnnn",
    "scaled": "ppnnn",
    "normed": "pppnnnf",
    "gated": "ppnnn",
    "rotated": "pppnnnnn",
    "log_probabilities": "pppnnn",
    "attention": "p",
    "through": "pnpnpnpppnnf",
}

Fields = list[tuple[str, Any]]


def _pointers(*names: str) -> Fields:
    return [(name, ctypes.c_void_p) for name in names]


def _sizes(*names: str) -> Fields:
    return [(name, ctypes.c_int64) for name in names]


class Matrix(ctypes.Structure):
    """A linear layer; see `compiled.c`. `tensors` keeps alive what it points to."""

    _fields_ = _pointers("weight", "scale", "moved", "bias") + _sizes("out", "width", "kind")

    tensors: tuple[Any, ...]

    @classmethod
    def of(
        cls, weight: Tensor, bias: Tensor | None = None, scale: Tensor | None = None
    ) -> Matrix | None:
        """The layer of a weight (out, in) in float32, bfloat16 or, with a scale (out,), 8 bits; None
        for any other.
        """
        is_integer = weight.dtype == torch.int8
        if (
            weight.dtype not in KINDS
            or not weight.is_contiguous()
            or is_integer != (scale is not None)
        ):
            return None
        sizes = weight.shape
        kind = KINDS[weight.dtype]
        moved = None
        bias = None if bias is None else bias.float().contiguous()
        if scale is not None:  # in panels, four numbers of each row together
            moved = weight.sum(1, dtype=torch.int32).mul_(ZERO_POINT)
            below = -sizes[0] % PANEL
            right = -sizes[1] % 4
            weight = F.pad(weight, (0, right, 0, below)).view(-1, PANEL, (sizes[1] + right) // 4, 4)
            weight = weight.transpose(1, 2).contiguous()
            scale, moved, bias = (
                None if x is None else F.pad(x, (0, below)) for x in (scale, moved, bias)
            )
        tensors = (weight, scale, moved, bias)
        matrix = cls(*(None if x is None else x.data_ptr() for x in tensors), *sizes, kind)
        matrix.tensors = tensors
        return matrix


class LayerArguments(ctypes.Structure):
    """A layer; see `compiled.c`."""

    _fields_ = (
        [(name, Matrix) for name in ("qkv", "out", "up", "down")]
        + _pointers("attention_norm", "mlp_norm", "q_norm", "k_norm")
        + _sizes("heads", "kv_heads")
    )


class Cache(ctypes.Structure):
    """One layer's keys and values; see `compiled.c`."""

    _fields_ = _pointers("k", "v") + _sizes("slots", "kind")


class Token(ctypes.Structure):
    """Where a token's key and value go, and the slots that it attends to."""

    _fields_ = _sizes("cache", "slot", "first", "keys")


class Operand(ctypes.Structure):
    """Queries, keys or values (row, head, token, number); see `attention.c`."""

    _fields_ = _pointers("at") + _sizes("row", "head", "token")

    @classmethod
    def of(cls, tensor: Tensor) -> Operand:
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class AttentionArguments(ctypes.Structure):
    """An attention; see `attention.c`."""

    _fields_ = (
        [(name, Operand) for name in ("q", "k", "v")]
        + _pointers("y", "slots", "mask")
        + _sizes(
            "mask_row",
            "mask_query",
            "rows",
            "heads",
            "kv_heads",
            "queries",
            "keys",
            "dim",
            "kind",
            "causal",
        )
    )


def multiply(matrix: Matrix, x: Tensor) -> Tensor:
    """(token, in) -> (token, out), in the type of x.

    Raises:
        MemoryError: there is none for what threads hold.
    """
    tokens = x.shape[0]
    if matrix.kind in (KINDS[torch.int8], BLOCKS) and tokens > MOST_ROWS:
        x_taken = (x if x.dtype in FLOATS else x.float()).contiguous()
        y = x_taken.new_empty(tokens, matrix.out)
        failed = call("product_many", ctypes.byref(matrix), x_taken, y, tokens, y.dtype)
    else:
        x_taken = x.float().contiguous()
        y = torch.empty(tokens, matrix.out)
        failed = call("product", ctypes.byref(matrix), x_taken, y, tokens)
    if failed:
        raise MemoryError(f"a product of {tokens} tokens")
    return y.to(x.dtype)


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """(token, in) in float32 or bfloat16 -> unsigned integers, ZERO_POINT above the value, and
    scales (token, 1).
    """
    q = torch.empty(x.shape, dtype=torch.uint8)
    scale = torch.empty(len(x), 1)
    call("quantised", x.contiguous(), q, scale, *x.shape, x.dtype)
    return q, scale


def scale_(y: Tensor, scale: Tensor) -> Tensor:
    """y (token, out) in float32 or bfloat16 times scales (token, 1), in place."""
    call("scaled", y, scale, *y.shape, y.dtype)
    return y


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm (..., width) in float32 or bfloat16, by a weight (width,)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    width = x.shape[-1]
    call("normed", x, y, weight.float(), x.numel() // width, width, x.dtype, eps)
    return y


def gated(inner: Tensor) -> Tensor:
    """silu(gate) * value: (token, gate then value) in float32 or bfloat16 -> (token, unit)."""
    y = inner.new_empty(len(inner), inner.shape[1] // 2)
    call("gated", inner.contiguous(), y, *y.shape, y.dtype)
    return y


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rope.rotate` of heads (token, head, dim) that stand side by side, in float32 or bfloat16, in
    place.
    """
    angles = [part.float().contiguous() for part in (cos, sin)]
    call("rotated", x, *angles, *x.shape, x.stride(0), x.dtype)
    return x


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (token, vocab) in float32 or bfloat16, targets (token,) -> their log-probabilities
    (token,) in float32.
    """
    y = torch.empty(len(logits))
    call(
        "log_probabilities",
        logits.contiguous(),
        targets.contiguous(),
        y,
        *logits.shape,
        logits.dtype,
    )
    return y


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool = False,
    slots: Tensor | None = None,
) -> Tensor | None:
    """Attention (row, head, query, dim) as `operations.attend` has it, over all keys and values (1,
    kv_head, slot, dim) or each row's `slots` (row, key); None where `attention.c` does not compute
    it.
    """
    count, heads, queries, dim = q.shape
    keys, least = (k.shape[2], LEAST_QUERIES) if slots is None else (slots.shape[1], LEAST_GATHERED)
    if q.dtype not in FLOATS or queries < least or dim % LANES or dim > MOST_DIM:
        return None
    masked: tuple[int | None, int, int] = (None, 0, 0)
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape[1:] != (1, queries, keys):
            return None
        mask = mask if mask.stride(3) == 1 else mask.contiguous()
        masked = (mask.data_ptr(), mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2))
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    slots = None if slots is None else slots.contiguous()
    y = q.new_empty(count, queries, heads, dim)
    arguments = AttentionArguments(
        *map(Operand.of, (q, k, v)),
        y.data_ptr(),
        None if slots is None else slots.data_ptr(),
        *masked,
        *(count, heads, k.shape[1], queries, keys, dim),
        KINDS[q.dtype],
        causal and mask is None,
    )
    return None if call("attention", ctypes.byref(arguments)) else y.transpose(1, 2)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C files with the process's number of threads.

    Args:
        arguments: Tensors go by their addresses, data types by their numbers in `KINDS`.

    Returns:
        The function's status, true where memory was short; meaningless where it has none.
    """
    taken = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            taken.append(argument.data_ptr())
        else:
            taken.append(KINDS[argument] if isinstance(argument, torch.dtype) else argument)
    return getattr(library(), name)(*taken, torch.get_num_threads())


@cache
def library() -> Any:
    """The compiled file; None where it cannot be made or used, for a reason that is logged."""
    try:
        compiled = ctypes.CDLL(str(_compiled_file()))
        for name, letters in SIGNATURES.items():
            getattr(compiled, name).argtypes = [*map(TYPES.__getitem__, letters), ctypes.c_int]
    except (OSError, AttributeError, UserError, subprocess.SubprocessError) as error:
        logger.info("no compiled kernels: %s", getattr(error, "stderr", None) or error)
        return None
    return compiled


def compiler() -> str | None:
    """The C compiler on the PATH."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def source_hash() -> str:
    """Identifies what `library` is compiled from."""
    return hashlib.sha256(
        "".join(file_sha256(FOLDER / name) for name in SOURCES + HEADERS).encode()
    ).hexdigest()


def _compiled_file() -> Path:
    path_of_compiler = compiler()
    if path_of_compiler is None:
        raise OSError(f"no C compiler on the PATH; looked for {', '.join(COMPILERS)}")
    # Processors of one name may differ in their instruction sets and share a disk with the compiled
    # file.
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    parts = [cpu_model(), flags, source_hash(), path_of_compiler, *OPTIONS]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    path = store.home() / "kernels" / f"compiled-{name}.so"
    if not path.exists():
        with locked(path):
            if not path.exists():
                write_file(path, _compile(path_of_compiler))
    return path


def _compile(compiler: str) -> bytes:
    """The bytes of the library. It is linked without OpenMP: the process has loaded torch's own."""
    objects = [Path(name).with_suffix(".o").name for name in SOURCES]
    with tempfile.TemporaryDirectory() as folder:
        for command in (
            (compiler, *OPTIONS, "-c", *(str(FOLDER / name) for name in SOURCES)),
            (compiler, "-shared", "-o", "compiled.so", *objects, "-lm"),
        ):
            subprocess.run(
                command, cwd=folder, check=True, capture_output=True, text=True, timeout=LIMIT_S
            )
        return Path(folder, "compiled.so").read_bytes()
