"""The torch decoder (`engines/lm.py`): both levels, on checkpoints of every family in `engines/families/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import Capabilities, Capability

if TYPE_CHECKING:
    from ragauge.engines.lm import LM

CAPABILITIES: Capabilities = frozenset(Capability)


def load(
    source: str,
    *,
    dtype: str,
    device: str,
    threads: int | None,
    max_context: int | None,
    weights: str = "full",
    kv: str = "full",
) -> LM:
    """The decoder and tokenizer of a source; see `ragauge.engines.lm.load`."""
    from ragauge.engines import lm

    options: dict[str, Any] = {"max_context": max_context, "weights": weights, "kv": kv}
    return lm.load(source, dtype=dtype, device=device, threads=threads, **options)
