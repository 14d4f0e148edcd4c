"""Engines: what reads prompts and generates. `protocol` says what methods may ask of one.

Importing the package imports no torch: names of the torch decoder are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from ragauge.engines.cache import KVCache
    from ragauge.engines.decoder import Decoder
    from ragauge.engines.engine import LM, ShapeLM
    from ragauge.engines.loading import DTYPES, load_lm, random_lm

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
    "load_lm",
    "mismatch",
    "random_lm",
]


def __getattr__(name: str) -> Any:
    """The names above that need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragauge.engines import cache, decoder, engine, loading

    return next(getattr(module, name) for module in (cache, decoder, engine, loading) if hasattr(module, name))
