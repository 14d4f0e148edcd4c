"""The header of a GGUF file, read without believing it.

Readers of GGUF trust the lengths that a file states; this one, which they are preceded by, does not.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little-endian).
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ragauge.errors import UserError

MAX_ENTRIES = 1 << 20  # key-value pairs or tensors; files of 400B models have thousands
MAX_DIMENSIONS = 4  # of ggml
STRING, ARRAY = 8, 9  # codes of value types
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # for struct


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in the file."""

    size: tuple[int, ...]  # the slowest dimension first, as torch has it
    type: str  # ggml's name, as Q4_K
    begin: int  # first byte
    bytes: int

    @property
    def stop(self) -> int:
        return self.begin + self.bytes


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    values: Mapping[str, Any]  # numbers and strings by key; of an array, its length
    tensors: Mapping[str, StoredTensor]

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number above 0; raises ValueError where it is none."""
        value = self.values.get(key, default)
        if type(value) is not int or not 0 < value < 1 << 32:
            raise ValueError(f"{key}: {str(value)[:40]} is not a valid model size")
        return value


def read_header(path: Path) -> Header:
    """The header of a GGUF file whose tensors all lie within it, none over another; raises UserError else."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (ValueError, struct.error, OSError) as error:
        raise UserError(f"{path}: not a whole GGUF file: {error}") from None


def check_decoder(header: Header) -> None:
    """Hold the tensors of a file of the Llama or Qwen2 kind against the sizes that its keys state.

    Raises:
        ValueError: one is missing, of another size, or unknown: what a reader does not expect it leaves out, and what
            it does not find it fills with random numbers.
    """
    expected = dict(_expected(header))
    for name, size in expected.items():
        if name not in header.tensors:
            raise ValueError(f"it has no tensor {name!r}")
        if header.tensors[name].size != size:
            raise ValueError(f"tensor {name!r} is {header.tensors[name].size} where its keys say {size}")
    optional = {"output.weight": expected["token_embd.weight"], "rope_freqs.weight": None}
    for name in header.tensors.keys() - expected.keys():
        if name not in optional or optional[name] not in (None, header.tensors[name].size):
            raise ValueError(f"tensor {name!r} is not of a plain {header.values['general.architecture']} decoder")


def _expected(header: Header) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that the file must have: (name, size)."""
    kind = header.values["general.architecture"]
    layers, d = header.size(f"{kind}.block_count"), header.size(f"{kind}.embedding_length")
    heads, ffn = header.size(f"{kind}.attention.head_count"), header.size(f"{kind}.feed_forward_length")
    kv_heads = header.size(f"{kind}.attention.head_count_kv", heads)
    dim = header.size(f"{kind}.attention.key_length", max(1, d // heads))
    if layers > len(header.tensors):
        raise ValueError(f"{kind}.block_count: {layers:,} layers of {len(header.tensors):,} tensors")
    yield "token_embd.weight", (header.size("tokenizer.ggml.tokens"), d)
    yield "output_norm.weight", (d,)
    outputs = {"attn_q": heads * dim, "attn_k": kv_heads * dim, "attn_v": kv_heads * dim}
    for layer in range(layers):
        block = f"blk.{layer}"
        yield from ((f"{block}.{norm}.weight", (d,)) for norm in ("attn_norm", "ffn_norm"))
        yield from ((f"{block}.{name}.weight", (rows, d)) for name, rows in outputs.items())
        if kind == "qwen2":
            yield from ((f"{block}.{name}.bias", (rows,)) for name, rows in outputs.items())
        yield f"{block}.attn_output.weight", (d, heads * dim)
        yield from ((f"{block}.{name}.weight", (ffn, d)) for name in ("ffn_gate", "ffn_up"))
        yield f"{block}.ffn_down.weight", (d, ffn)


@dataclass
class _Cursor:
    """A place in the file; raises ValueError or struct.error rather than leave it."""

    data: mmap.mmap
    at: int = 0

    def header(self) -> Header:
        magic, version = self.take("4sI")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}")
        tensors, pairs = self.take("QQ")
        if max(tensors, pairs) > MAX_ENTRIES:
            raise ValueError(f"its header states {tensors:,} tensors and {pairs:,} keys")
        values = {self.text(): self.value(self.take("I")[0]) for _ in range(pairs)}
        return Header(values, self.tensors(tensors, values.get("general.alignment", 32)))

    def tensors(self, count: int, alignment: Any) -> dict[str, StoredTensor]:
        """By name; offsets count from the aligned end of the header."""
        found = [self.tensor() for _ in range(count)]
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"alignment {alignment!r}")
        begin = self.at + -self.at % alignment
        placed = {name: StoredTensor(size, kind, begin + offset, length) for name, size, kind, offset, length in found}
        if len(placed) < count:
            raise ValueError("two tensors have the same name")
        ordered = sorted(placed.items(), key=lambda item: item[1].begin)
        for (name, one), (other, following) in pairwise(ordered):
            if one.stop > following.begin:
                raise ValueError(f"tensors {name!r} and {other!r} overlap")
        if ordered and ordered[-1][1].stop > len(self.data):
            name, last = ordered[-1]
            raise ValueError(f"it ends at byte {len(self.data):,}, tensor {name!r} at {last.stop:,}")
        return placed

    def tensor(self) -> tuple[str, tuple[int, ...], str, int, int]:
        """(name, size, type, offset, bytes)."""
        name, (dimensions,) = self.text(), self.take("I")
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions:,} dimensions")
        size = self.take(f"{dimensions}Q")
        code, offset = self.take("IQ")
        kind, values, length = _block(code, name)
        if size and size[0] % values:
            raise ValueError(f"tensor {name!r}: rows of {size[0]:,} values are not in whole blocks of {kind}")
        return name, size[::-1], kind, offset, math.prod(size) // values * length

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.skip_array()
        if kind not in SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return self.take(SCALARS[kind])[0]

    def skip_array(self) -> int:
        """The length of an array, which is left out."""
        kind, count = self.take("IQ")
        if kind == STRING:
            if count > len(self.data) // 8:
                raise ValueError(f"an array of {count:,} strings")
            for _ in range(count):
                self.skip(self.take("Q")[0])
        elif kind in SCALARS:
            self.skip(count * struct.calcsize(SCALARS[kind]))
        else:
            raise ValueError(f"an array of type {kind}")
        return int(count)

    def text(self) -> str:
        (length,) = self.take("Q")
        start = self.at
        self.skip(length)
        return self.data[start : self.at].decode("utf-8", errors="replace")

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ValueError(f"a value of {count:,} bytes at byte {self.at:,} of {len(self.data):,}")
        self.at += count


def _block(code: int, name: str) -> tuple[str, int, int]:
    """A type's name, and values and bytes of one of its blocks."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(code)
        return kind.name, *GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise ValueError(f"tensor {name!r} has the unknown type {code}") from None
