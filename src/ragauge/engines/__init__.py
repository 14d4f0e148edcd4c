"""Engines: what reads prompts and generates. `protocol` says what methods may ask of one.

Importing the package imports no torch: names of the torch decoder are resolved when they are first used.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
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
    Response,
    Row,
    Span,
    SpanEngine,
    mismatch,
    named,
)
from ragauge.errors import UserError
from ragauge.lazy import exported

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache
    from ragauge.engines.decoder import Decoder
    from ragauge.engines.lm import DTYPES, LM, random_lm
    from ragauge.engines.loading import load_lm
    from ragauge.engines.shape_lm import ShapeLM

__all__ = [
    "ANSWERING",
    "DTYPES",
    "LM",
    "Capabilities",
    "Capability",
    "Decoder",
    "Engine",
    "EngineLostError",
    "Extension",
    "KVCache",
    "Limits",
    "Response",
    "Row",
    "ShapeLM",
    "Span",
    "SpanEngine",
    "capabilities",
    "check_kept",
    "load",
    "load_lm",
    "mismatch",
    "named",
    "random_lm",
]


def _modules() -> Iterator[ModuleType]:
    from ragauge.engines import cache, decoder, lm, loading, shape_lm

    yield from (cache, decoder, lm, loading, shape_lm)


__getattr__ = exported(__all__, _modules)


def capabilities(engine: str, where: str = "") -> Capabilities:
    """What an engine of `backends/` can do, by its name; raises UserError on an unknown one. Loads no model."""
    can: Capabilities = registry.module("engine", engine, where).CAPABILITIES
    return can


def check_kept(engine: str, kept: Mapping[str, Any], where: str = "") -> None:
    """Raise UserError if the engine does not support these values of a model's options `weights` and `kv`."""
    able = inspect.signature(registry.module("engine", engine, where).load).parameters
    for key, value in kept.items():
        if value != "full" and key not in able:
            raise UserError(f"{where}{': ' if where else ''}{key} {value!r}: engine {engine!r} supports only 'full'")


def load(
    source: str,
    engine: str = "torch",
    *,
    dtype: str | None = "float32",
    device: str | None = "cpu",
    threads: int | None = None,
    max_context: int | None = None,
    **kept: Any,
) -> Engine:
    """A model under one of the engines of `backends/`, by the engine's name.

    Args:
        source: what that engine reads: for torch a name of the catalog, a prefixed source or a folder.
        kept: `weights` and `kv`, how matrices and cached keys and values are stored; only torch supports more than
            "full"; `served`, how openai asks its server.

    Raises:
        UserError: unknown engine; whatever the engine raises on the other arguments.
    """
    module = registry.module("engine", engine)
    reduced = {key: value for key, value in kept.items() if value != "full"}
    options = {"dtype": dtype, "device": device, "threads": threads, "max_context": max_context, **reduced}
    check_kept(engine, reduced)
    found: Engine = module.load(source, **options)
    return found
