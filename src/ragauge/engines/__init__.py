"""Engines: what reads prompts and generates. `protocol` says what methods may ask of one.

Importing the package imports no torch: names of the torch decoder are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.engines.protocol import (
    Capabilities,
    Capability,
    Engine,
    Extension,
    Limits,
    Response,
    Row,
    Span,
    SpanEngine,
    mismatch,
)

if TYPE_CHECKING:
    from ragauge.engines.backends.shapes import ShapeLM
    from ragauge.engines.backends.torch import DTYPES, LM, random_lm
    from ragauge.engines.backends.torch import load as load_lm
    from ragauge.engines.cache import KVCache
    from ragauge.engines.decoder import Decoder

__all__ = [
    "DTYPES",
    "LM",
    "Capabilities",
    "Capability",
    "Decoder",
    "Engine",
    "Extension",
    "KVCache",
    "Limits",
    "Response",
    "Row",
    "ShapeLM",
    "Span",
    "SpanEngine",
    "load",
    "load_lm",
    "mismatch",
    "random_lm",
]


def __getattr__(name: str) -> Any:
    """The names above that need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragauge.engines import cache, decoder
    from ragauge.engines.backends import shapes, torch

    if name == "load_lm":
        return torch.load
    return next(getattr(module, name) for module in (cache, decoder, shapes, torch) if hasattr(module, name))


def load(
    source: str,
    engine: str = "torch",
    *,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
) -> Engine:
    """A model under one of the engines of `backends/`, by the engine's name.

    Args:
        source: what that engine reads: for torch a name of the catalog, a prefixed source or a folder.

    Raises:
        UserError: unknown engine; whatever the engine raises on the other arguments.
    """
    module = registry.module("engine", engine)
    found: Engine = module.load(source, dtype=dtype, device=device, threads=threads, max_context=max_context)
    return found
