"""The C files beside this one, compiled once on a machine with a C compiler and kept with the assets."""

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
import torch.nn.functional as F
from torch import Tensor

from ragauge.assets import store
from ragauge.cost.machine import cpu_model
from ragauge.io.files import write_file
from ragauge.io.folders import file_sha256, locked

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
SOURCES = ("compiled.c", "attention.c")
HEADERS = ("vectors.h",)
COMPILERS = ("cc", "gcc", "clang")
OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp")
LIMIT_S = 120.0  # of a compilation
MOST_ROWS = 16  # beyond them a matrix product is bound by arithmetic, which torch's libraries do better
LEAST_QUERIES = 17  # of an attention: for fewer, keys are not worth laying out anew
LEAST_GATHERED = 4  # the same where keys would be gathered before
LANES = 16  # heads are of whole vectors
MOST_DIM = 256  # of a head

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
MOVED = 128  # what stands for 0 among unsigned activations
PANEL = 16  # rows of 8-bit integers that stand together


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
        sizes, kind = weight.shape, KINDS[weight.dtype]
        bias = None if bias is None else bias.float().contiguous()
        tensors = (weight, None, None, bias) if scale is None else _panels(weight, scale, bias)
        made = cls(*(None if t is None else t.data_ptr() for t in tensors), *sizes, kind)
        made.held = tensors
        return made


def _panels(weight: Tensor, scale: Tensor, bias: Tensor | None) -> tuple[Tensor | None, ...]:
    """Rows of 8-bit integers in panels, four numbers of each row together; see `compiled.c`."""
    moved = weight.sum(1, dtype=torch.int32).mul_(MOVED)
    below, right = -weight.shape[0] % PANEL, -weight.shape[1] % 4
    padded = F.pad(weight, (0, right, 0, below)).view(-1, PANEL, (weight.shape[1] + right) // 4, 4)
    vectors = (None if x is None else F.pad(x, (0, below)) for x in (scale, moved, bias))
    return padded.transpose(1, 2).contiguous(), *vectors


class LayerArguments(ctypes.Structure):
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


class Operand(ctypes.Structure):
    """Queries, keys or values (row, head, token, number); see `attention.c`."""

    _fields_ = [("at", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("row", "head", "token"))]

    @classmethod
    def of(cls, tensor: Tensor) -> Operand:
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class AttentionArguments(ctypes.Structure):
    """An attention; see `attention.c`."""

    _fields_ = [
        *((name, Operand) for name in ("q", "k", "v")),
        *((name, ctypes.c_void_p) for name in ("y", "slots", "mask")),
        *((name, ctypes.c_int64) for name in ("mask_row", "mask_query", "rows", "heads", "kv_heads")),
        *((name, ctypes.c_int64) for name in ("queries", "keys", "dim", "kind", "causal")),
    ]


def rows(width: int, count: int) -> bool:
    """Whether heads of this width and so many tokens are taken."""
    return width % LANES == 0 and count <= MOST_ROWS


def multiply(matrix: Matrix, x: Tensor) -> Tensor:
    """(token, in) -> (token, out), in the type of x."""
    found = library()
    assert found is not None
    if matrix.kind == KINDS[torch.int8] and x.shape[0] > MOST_ROWS:
        taken = x if x.dtype in (torch.float32, torch.bfloat16) else x.float()
        return _many(found, matrix, taken.contiguous()).to(x.dtype)
    x32 = x.float().contiguous()
    y = torch.empty(x.shape[0], matrix.out)
    found.product(ctypes.byref(matrix), x32.data_ptr(), y.data_ptr(), x.shape[0], torch.get_num_threads())
    return y.to(x.dtype)


def _many(found: ctypes.CDLL, matrix: Matrix, x: Tensor) -> Tensor:
    y = x.new_empty(x.shape[0], matrix.out)
    given = (ctypes.byref(matrix), x.data_ptr(), y.data_ptr(), x.shape[0], KINDS[x.dtype], torch.get_num_threads())
    if found.product_many(*given):
        raise MemoryError(f"a product of {x.shape[0]} tokens")
    return y


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (token, in) in float32 -> unsigned integers MOVED above what is meant, and scales (token, 1)."""
    found = library()
    assert found is not None
    x = x.contiguous()
    q, scale = torch.empty(x.shape, dtype=torch.uint8), torch.empty(x.shape[0], 1)
    threads = torch.get_num_threads()
    found.quantise_all(x.data_ptr(), q.data_ptr(), scale.data_ptr(), x.shape[0], x.shape[1], threads)
    return q, scale


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """(token, word) in float32 or bfloat16, (token,) -> the words' log-probabilities in float32."""
    found = library()
    assert found is not None
    logits, targets = logits.contiguous(), targets.contiguous()
    tokens, words = logits.shape
    y = torch.empty(tokens)
    given = (logits.data_ptr(), targets.data_ptr(), y.data_ptr(), tokens, words, KINDS[logits.dtype])
    found.log_probabilities(*given, torch.get_num_threads())
    return y


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Attention (row, head, query, dim) as `kernels.attend` has it; None where `attention.c` does not compute it."""
    if not _attended(q, k, v, mask, k.shape[2], LEAST_QUERIES):
        return None
    return _attend(q, k, v, None, mask, causal)


def attend_gathered(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, mask: Tensor | None) -> Tensor | None:
    """The same over keys and values (kv_head, slot, dim), of which each row has those of its slots (row, key)."""
    k, v = k[None], v[None]
    if not _attended(q, k, v, mask, slots.shape[1], LEAST_GATHERED):
        return None
    return _attend(q, k, v, slots, mask, causal=False)


def _attend(q: Tensor, k: Tensor, v: Tensor, slots: Tensor | None, mask: Tensor | None, causal: bool) -> Tensor | None:
    found = library()
    assert found is not None
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    slots = None if slots is None else slots.contiguous()
    count, heads, queries, dim = q.shape
    y = q.new_empty(count, queries, heads, dim)
    about: tuple[int | None, int, int] = (None, 0, 0)
    if mask is not None:
        mask = mask if mask.stride(3) == 1 else mask.contiguous()
        about = (mask.data_ptr(), mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2))
    keys = k.shape[2] if slots is None else slots.shape[1]
    sizes = (count, heads, k.shape[1], queries, keys, dim, KINDS[q.dtype], causal and mask is None)
    places = None if slots is None else slots.data_ptr()
    asked = AttentionArguments(*map(Operand.of, (q, k, v)), y.data_ptr(), places, *about, *sizes)
    short = found.attention(ctypes.byref(asked), torch.get_num_threads())
    return None if short else y.transpose(1, 2)


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keys: int, least: int) -> bool:
    queries, dim = q.shape[2:]
    of_one_type = q.dtype in (torch.float32, torch.bfloat16) and q.dtype == k.dtype == v.dtype
    sized = queries >= least and dim % LANES == 0 and dim <= MOST_DIM and v.shape == k.shape
    known = mask is None or (mask.dtype == torch.bool and mask.shape[1:] == (1, queries, keys))
    return of_one_type and sized and known


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
    return None if compiler() is None else _sources()[:12]


def _sources() -> str:
    """Hash of the C files."""
    return hashlib.sha256("".join(file_sha256(FOLDER / name) for name in SOURCES + HEADERS).encode()).hexdigest()


def compiler() -> str | None:
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def _instructions() -> str:
    """What this processor can do: machines of one name may differ, and the file may lie on a disk that they share."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    found.product.restype = None
    found.product.argtypes = [pointer, pointer, pointer, integer, ctypes.c_int]
    found.product_many.argtypes = [pointer, pointer, pointer, integer, integer, ctypes.c_int]
    found.quantise_all.restype = None
    found.quantise_all.argtypes = [pointer, pointer, pointer, integer, integer, ctypes.c_int]
    found.through.argtypes = [
        pointer, integer, pointer, integer, pointer, integer, pointer, pointer, pointer, integer, integer,
        ctypes.c_float, ctypes.c_int,
    ]  # fmt: skip
    found.log_probabilities.restype = None
    found.log_probabilities.argtypes = [pointer, pointer, pointer, integer, integer, integer, ctypes.c_int]
    found.attention.argtypes = [pointer, ctypes.c_int]
    return found


def _made() -> Path:
    """The library's file, compiled where it is not there yet. OpenMP is torch's own, which the process has loaded."""
    found = compiler()
    if found is None:
        raise OSError(f"no C compiler on the PATH; looked for {', '.join(COMPILERS)}")
    parts = [cpu_model(), _instructions(), _sources(), found, *OPTIONS]
    named = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    path = store.home() / "kernels" / f"compiled-{named}.so"
    if not path.exists():
        with locked(path):
            if not path.exists():
                write_file(path, _compile(found))
    return path


def _compile(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        shared, made = Path(folder, "compiled.so"), [Path(folder, name).with_suffix(".o") for name in SOURCES]
        steps: Sequence[Sequence[str]] = (
            *((compiler, *OPTIONS, "-c", str(FOLDER / one.with_suffix(".c").name), "-o", str(one)) for one in made),
            (compiler, "-shared", "-o", str(shared), *map(str, made), "-lm"),
        )
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=LIMIT_S)
        return shared.read_bytes()
