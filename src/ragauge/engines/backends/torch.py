"""The torch decoder (`engines/lm.py`): both levels, on checkpoints of every family in
`engines/families/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import DECODING

if TYPE_CHECKING:
    from ragauge.engines.lm import LM

CAPABILITIES = DECODING


def load(source: str, **options: Any) -> LM:
    """The decoder and tokenizer of a source; see `ragauge.engines.loading.load_lm`."""
    from ragauge.engines.loading import load_lm

    return load_lm(source, **options)
