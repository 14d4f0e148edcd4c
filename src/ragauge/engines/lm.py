"""The torch decoder with its tokenizer: checkpoints of every family, or random weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from ragauge.cost import hardware
from ragauge.cost.hardware import CACHE_TYPES, DEVICES
from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache
from ragauge.engines.checkpoint import random_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.kernels import measured, use
from ragauge.engines.passes import CallOptions, Passes
from ragauge.engines.protocol import DECODING, Capabilities, Extension, Row
from ragauge.engines.recorded import Ended, RecordedEngine
from ragauge.engines.steps import StepsByCapacity
from ragauge.errors import UserError, unknown

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in hardware.DTYPES}


class LM(RecordedEngine):
    """A decoder with its tokenizer. All calls run in inference mode and are recorded while `tracing`."""

    able: ClassVar[Capabilities] = DECODING

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

    def compute(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> Extension:
        """See `RecordedEngine.compute`."""
        return self.passes.extend(cache, rows, asked)

    def decode(self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None) -> list[int]:
        """See `RecordedEngine.decode`."""
        if self.steps and cache.plain and self.steps.ready(cache.length + most - 1):
            ids = self.steps.continued(cache, ids, position, most, ended)
        return self.passes.alone(self.passes.decoding(cache, ids, position, most, ended))


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
    number, place = settled(dtype, device, threads, weights, kv)
    drawn = random_weights(shape, number, place, seed, weights)
    return LM(Decoder(shape, drawn), weights=weights, kv=kv)


def settled(dtype: str, device: str, threads: int | None, weights: str, kv: str) -> tuple[torch.dtype, torch.device]:
    """(data type, device) of a decoder that is about to be made; its number of threads and its kernels are set.

    Raises:
        UserError: an unknown value, or one that the device does not support.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    number, place = _dtype(dtype), _device(device)
    if kv not in CACHE_TYPES:
        raise unknown("kv", kv, CACHE_TYPES)
    if kv != "full" and place.type != "cpu":
        raise UserError(f"kv {kv!r} is not available on device {place.type!r}; known there: full")
    if place.type == "cpu":
        use(measured.choice(number, weights=weights))
    return number, place


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
