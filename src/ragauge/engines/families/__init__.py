"""Checkpoint families: one file each, with `MODEL_TYPES`, `shape(config)` and the `NAMES` of its
tensors.

A family whose tensors are not the decoder's own has `convert(part, tensor, shape, config)` too:
what a weight or a bias becomes that was read for a part of `weights.Layer` or `weights.Weights`.
Constants that families multiply with are multiplied into weights there, so that the decoder has no
branch for them.
"""

import importlib
import pkgutil
from types import ModuleType

from ragauge.errors import UnsupportedError, unknown

MIXTURES = (
    "dbrx",
    "deepseek_v2",
    "deepseek_v3",
    "gpt_oss",
    "jamba",
    "llama4",
    "llama4_text",
    "minimax",
    "mixtral",
)
"""Mixtures of experts by their `model_type`, besides those with "moe" in it."""


def family(model_type: str, where: str = "") -> ModuleType:
    """The module that reads checkpoints of this `model_type` (the key in their config.json)."""
    names = [
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    ]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    known = {kind: module for module in modules for kind in module.MODEL_TYPES}
    if model_type in MIXTURES or "moe" in model_type:
        place = f"{where}: " if where else ""
        families = ", ".join(sorted(known))
        raise UnsupportedError(
            f"{place}{model_type!r} is a mixture of experts, which is not supported; known: {families}"
        )
    if model_type not in known:
        raise UnsupportedError(str(unknown("checkpoint family", model_type, known, where)))
    return known[model_type]
