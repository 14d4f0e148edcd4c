"""An engine without weights (`engines/shape_lm.py`): for costs, not for answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import Capabilities, Capability

if TYPE_CHECKING:
    from ragauge.engines.shape_lm import ShapeLM

CAPABILITIES: Capabilities = frozenset({Capability.SPANS, Capability.FULL_ATTENTION})


def load(source: str, *, max_context: int | None, **_: Any) -> ShapeLM:
    """The shape of a named model (`cost/shapes.yaml`) or a checkpoint folder; other arguments have no effect."""
    from ragauge.cost import shapes
    from ragauge.engines.checkpoint import read_shape
    from ragauge.engines.shape_lm import ShapeLM

    shape = read_shape(Path(source), max_context) if os.path.isdir(source) else shapes.named(source)
    return ShapeLM(shape if max_context is None else shapes.with_context(shape, max_context))
