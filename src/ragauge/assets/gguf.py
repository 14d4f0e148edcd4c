"""GGUF files, converted once to the hub's layout: a folder of safetensors, configuration and tokenizer."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.assets.store import Store
from ragauge.errors import UserError

CONVERSION = 1  # raised when the result of a conversion changes
# Values of `tokenizer.ggml.pre` that make each digit a token of its own, which transformers' reader leaves out.
DIGIT_SPLITS = ("smollm", "starcoder", "refact", "command-r")

MAX_ENTRIES = 1 << 20  # key-value pairs or tensors; files of 400B models have thousands
STRING, ARRAY = 8, 9  # codes of value types
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # for struct


def converted(store: Store, path: Path, sha256: str) -> Path:
    """The folder of the decoder in the GGUF file at `path`, whose hash keys the conversion; made on first use.

    Raises UserError for a file that is no GGUF, is cut short, or holds what transformers cannot read.
    """
    target = store.folder("converted", path.stem, sha256, CONVERSION)

    def make(folder: Path) -> dict[str, Any]:
        store.say(f"converting {path.name} to safetensors")
        convert(path, folder)
        return {"source": path.name, "source_sha256": sha256, "conversion": CONVERSION}

    return store.build(target, make)


def convert(path: Path, folder: Path) -> None:
    """Writes the model's fp32 weights, configuration and tokenizer to `folder`.

    fp32, since bf16 would round most values of a 4-bit block (a 16-bit scale times a level, plus a 16-bit minimum).
    """
    header = read_header(path)
    try:
        model, tokenizer = _load(path)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: cannot be converted: {first_line}") from error
    if header.get("tokenizer.ggml.pre") in DIGIT_SPLITS:
        _split_digits(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)  # safetensors writes for the owner alone; the home may be shared


def _load(path: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(path.parent), path.name
    dequantize = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, quantization_config=dequantize
    )
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=name)


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    inner = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, inner.pre_tokenizer])


def read_header(path: Path) -> dict[str, Any]:
    """The numbers and strings of a GGUF header (arrays are skipped), every length held against the file's size.

    Readers of GGUF believe the lengths that a file states; this one, which they are preceded by, does not.
    Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little-endian).
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (ValueError, struct.error) as error:
        raise UserError(f"{path}: not a whole GGUF file: {error}") from None


@dataclass
class _Cursor:
    """A place in the file; raises ValueError or struct.error rather than leave it."""

    data: mmap.mmap
    at: int = 0

    def header(self) -> dict[str, Any]:
        magic, version = self.take("4sI")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}")
        tensors, pairs = self.take("QQ")
        if max(tensors, pairs) > MAX_ENTRIES:
            raise ValueError(f"its header states {tensors:,} tensors and {pairs:,} keys")
        values = {self.text(): self.value(self.take("I")[0]) for _ in range(pairs)}
        self.check_tensors(tensors, values.get("general.alignment", 32))
        return values

    def check_tensors(self, count: int, alignment: Any) -> None:
        """Every tensor must begin within the file; offsets count from the aligned end of the header."""
        last = max((self.tensor_offset() for _ in range(count)), default=0)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"alignment {alignment!r}")
        begin = self.at + -self.at % alignment + last
        if count and begin >= len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, a tensor begins at {begin:,}")

    def tensor_offset(self) -> int:
        self.text()
        (dimensions,) = self.take("I")
        self.skip(8 * dimensions + 4)  # sizes, type
        offset: int = self.take("Q")[0]
        return offset

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.skip_array()
        if kind not in SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return self.take(SCALARS[kind])[0]

    def skip_array(self) -> None:
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
