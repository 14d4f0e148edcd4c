"""A model behind an OpenAI-compatible server (`openai:NAME`): whole prompts in, text out, on the server's own stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import SERVED, Capabilities

if TYPE_CHECKING:
    from ragauge.engines.served import ServedEngine

CAPABILITIES: Capabilities = SERVED


def load(
    source: str,
    *,
    dtype: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    max_context: int | None = None,
    served: dict[str, Any] | None = None,
) -> ServedEngine:
    """The model `NAME` of a source `openai:NAME` at the server that the environment names; nothing is sent yet.

    Args:
        dtype, device, threads: without effect; the server has its own.
        served: see `ragauge.engines.served.load`.

    Raises:
        UserError: the environment names no server; the tokenizer cannot be read.
    """
    from ragauge.engines import served as engine

    return engine.load(source, max_context, **(served or {}))
