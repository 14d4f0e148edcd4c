"""`compiled.c` on this machine: compiled where there is a C compiler, once, and kept beside the assets."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ragauge.assets import store
from ragauge.cost.machine import cpu_model
from ragauge.io.files import write_file
from ragauge.io.folders import file_sha256, locked

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp")
LIMIT_S = 120.0  # of a compilation
MOST_ROWS = 16  # beyond them a matrix product is bound by arithmetic, which torch's libraries do better
LANES = 16  # heads are of whole vectors

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
MOVED = 128  # what stands for 0 among unsigned activations


class Matrix(ctypes.Structure):
    """A linear layer; see `compiled.c`. `held` keeps the tensors alive that it points to."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("weight", "scale", "moved", "bias")] + [
        (name, ctypes.c_int64) for name in ("out", "width", "kind")
    ]

    held: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None, scale: Tensor | None = None) -> Matrix | None:
        """Of a weight (out, in) in float32, bfloat16 or, with a scale (out,), 8 bits; None: it is none of these."""
        if weight.layout != torch.strided or weight.dtype not in KINDS or not weight.is_contiguous():
            return None
        moved = None if scale is None else weight.sum(1, dtype=torch.int32).mul_(MOVED)
        tensors = (weight, scale, moved, None if bias is None else bias.float().contiguous())
        made = cls(*(None if t is None else t.data_ptr() for t in tensors), *weight.shape, KINDS[weight.dtype])
        made.held = tensors
        return made


class Layer(ctypes.Structure):
    """A layer; see `compiled.c`."""

    _fields_ = [
        *((name, Matrix) for name in ("qkv", "out", "up", "down")),
        *((name, ctypes.c_void_p) for name in ("attention_norm", "mlp_norm", "q_norm", "k_norm")),
        *((name, ctypes.c_int64) for name in ("heads", "kv_heads")),
    ]


class Cache(ctypes.Structure):
    """One layer's keys and values; see `compiled.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("k", "v", "k_scale", "v_scale")),
        *((name, ctypes.c_int64) for name in ("slots", "kind")),
    ]


class Token(ctypes.Structure):
    """Where a token's key and value go, and the slots that it attends to."""

    _fields_ = [(name, ctypes.c_int64) for name in ("cache", "slot", "first", "keys")]


def rows(width: int, count: int) -> bool:
    """Whether heads of this width and so many tokens are taken."""
    return width % LANES == 0 and count <= MOST_ROWS


def multiply(matrix: Matrix, x: Tensor) -> Tensor:
    """(token, in) -> (token, out), in the type of x."""
    found = library()
    assert found is not None
    x32 = x.float().contiguous()
    y = torch.empty(x.shape[0], matrix.out)
    found.product(ctypes.byref(matrix), x32.data_ptr(), y.data_ptr(), x.shape[0], torch.get_num_threads())
    return y.to(x.dtype)


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (token, in) in float32 -> unsigned integers MOVED above what is meant, and scales (token, 1)."""
    found = library()
    assert found is not None
    x = x.contiguous()
    q, scale = torch.empty(x.shape, dtype=torch.uint8), torch.empty(x.shape[0], 1)
    threads = torch.get_num_threads()
    found.quantise_all(x.data_ptr(), q.data_ptr(), scale.data_ptr(), x.shape[0], x.shape[1], threads)
    return q, scale


@cache
def library() -> ctypes.CDLL | None:
    """The compiled file; None where it cannot be made or used, for a reason that is logged."""
    try:
        return _declared(ctypes.CDLL(str(_made())))
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        logger.info("no compiled kernels: %s", getattr(error, "stderr", None) or error)
        return None


def about() -> str | None:
    """What `library` would be made of; None where there is no compiler."""
    return None if _compiler() is None else file_sha256(SOURCE)[:12]


def _compiler() -> str | None:
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def _instructions() -> str:
    """What this processor can do: machines of one name may differ, and the file may lie on a disk that they share."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    found.product.restype = None
    found.product.argtypes = [pointer, pointer, pointer, integer, ctypes.c_int]
    found.quantise_all.restype = None
    found.quantise_all.argtypes = [pointer, pointer, pointer, integer, integer, ctypes.c_int]
    found.through.argtypes = [
        pointer, integer, pointer, integer, pointer, integer, pointer, pointer, pointer, integer, integer,
        ctypes.c_float, ctypes.c_int,
    ]  # fmt: skip
    return found


def _made() -> Path:
    """The library's file, compiled where it is not there yet. OpenMP is torch's own, which the process has loaded."""
    compiler = _compiler()
    if compiler is None:
        raise OSError(f"no C compiler on the PATH; looked for {', '.join(COMPILERS)}")
    parts = [cpu_model(), _instructions(), file_sha256(SOURCE), compiler, *OPTIONS]
    named = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    path = store.home() / "kernels" / f"compiled-{named}.so"
    if not path.exists():
        with locked(path):
            if not path.exists():
                write_file(path, _compile(compiler))
    return path


def _compile(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made, shared = Path(folder, "compiled.o"), Path(folder, "compiled.so")
        steps: Sequence[Sequence[str]] = (
            (compiler, *OPTIONS, "-c", str(SOURCE), "-o", str(made)),
            (compiler, "-shared", "-o", str(shared), str(made), "-lm"),
        )
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=LIMIT_S)
        return shared.read_bytes()
