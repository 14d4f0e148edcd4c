"""The family that reads a checkpoint, by its `model_type`."""

import importlib
import pkgutil
from types import ModuleType

from ragauge.engines import families
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
        module.name
        for module in pkgutil.iter_modules(families.__path__)
        if not module.name.startswith("_")
    ]
    modules = [importlib.import_module(f"{families.__name__}.{name}") for name in names]
    known = {kind: module for module in modules for kind in module.MODEL_TYPES}
    if model_type in MIXTURES or "moe" in model_type:
        prefix = f"{where}: " if where else ""
        raise UnsupportedError(
            f"{prefix}{model_type!r} is a mixture of experts, which is not supported; "
            f"known: {', '.join(sorted(known))}"
        )
    if model_type not in known:
        raise UnsupportedError(str(unknown("checkpoint family", model_type, known, where)))
    return known[model_type]
