"""Engines, which read prompts and generate; `protocol` defines what methods may use of one.

Importing the package imports no torch: names of the torch decoder are resolved when they are first used.
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.engines.protocol import (
    ANSWERING,
    Capabilities,
    Capability,
    Engine,
    EngineLostError,
    Extension,
    Limits,
    SpanEngine,
    describe,
    mismatch,
)
from ragauge.engines.spans import Row, Span
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache
    from ragauge.engines.decoder import Decoder
    from ragauge.engines.lm import LM
    from ragauge.engines.loading import DTYPES, load_lm, random_lm
    from ragauge.engines.shape_lm import ShapeLM

__all__ = ["ANSWERING", "DTYPES", "LM", "Capabilities", "Capability", "Decoder", "Engine", "EngineLostError"]
__all__ += ["Extension", "KVCache", "Limits", "Row", "ShapeLM", "Span", "SpanEngine", "capabilities"]
__all__ += ["check_quantization", "describe", "load", "load_lm", "mismatch", "random_lm"]


def __getattr__(name: str) -> Any:
    """Import a name of the torch decoder when it is first used."""
    if name in __all__:
        from ragauge.engines import cache, decoder, lm, loading, shape_lm

        for module in (cache, decoder, lm, loading, shape_lm):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def capabilities(engine: str, where: str = "") -> Capabilities:
    """The capabilities of an engine of `backends/`, by its name; raises UserError if it is unknown. Loads no model."""
    return registry.module("engine", engine, where).CAPABILITIES


def check_quantization(engine: str, storage: Mapping[str, Any], where: str = "") -> None:
    """Raise UserError if the engine does not support these values of a model's options `weights` and `kv`."""
    options = inspect.signature(registry.module("engine", engine, where).load).parameters
    for key, value in storage.items():
        if value != "full" and key not in options:
            raise UserError(f"{where}{': ' if where else ''}{key} {value!r}: engine {engine!r} supports only 'full'")


def load(
    source: str,
    engine: str = "torch",
    *,
    dtype: str | None = "float32",
    device: str | None = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
    **options: Any,
) -> Engine:
    """Load a model under an engine of `backends/`, by the engine's name.

    The source is for torch a name of the catalog, a prefixed source or a folder; other engines have their own. Options
    are `weights` and `kv`, how matrices and cached keys and values are stored, which only torch supports other than as
    "full", and `served`, how openai asks its server. Raises UserError for an unknown engine, and as the engine does.
    """
    others = {key: value for key, value in options.items() if value != "full"}
    check_quantization(engine, others)
    return registry.module("engine", engine).load(
        source, dtype=dtype, device=device, threads=threads, max_context=max_context, **others
    )
