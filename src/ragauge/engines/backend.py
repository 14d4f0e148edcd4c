"""Engines by name: their capabilities, and how one is loaded."""

from typing import Any

from ragauge import registry
from ragauge.engines.protocol import Capabilities, Engine
from ragauge.errors import UserError


def capabilities(engine: str, where: str = "") -> Capabilities:
    """The capabilities of an engine of `backends/`, by its name. Loads no model.

    Raises:
        UserError: an unknown name.
    """
    return registry.module("engine", engine, where).CAPABILITIES


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

    The source is for torch a name of the catalog, a prefixed source or a folder; other engines have
    their own. Options are `weights` and `kv`, how matrices and keys and values are stored, and
    `served`, how openai asks its server.

    Raises:
        UserError: an unknown engine, storage other than "full" of an engine other than torch,
            and as the engine does.
    """
    others = {key: value for key, value in options.items() if value != "full"}
    for key in ("weights", "kv"):
        if key in others and engine != "torch":
            needed = f"needs engine 'torch', not {engine!r}; known there: full"
            raise UserError(f"{key}: {others[key]!r} {needed}")
    return registry.module("engine", engine).load(
        source, dtype=dtype, device=device, threads=threads, max_context=max_context, **others
    )
