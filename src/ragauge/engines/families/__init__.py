"""Checkpoint families: one file each, with `MODEL_TYPES`, `shape(config)` and the `NAMES` of its tensors."""

import importlib
import pkgutil
from types import ModuleType

from ragauge.errors import UnsupportedError, unknown


def family(model_type: str, where: str = "") -> ModuleType:
    """The module that reads checkpoints of this `model_type` (the key in their config.json)."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    known = {kind: module for module in modules for kind in module.MODEL_TYPES}
    if model_type not in known:
        raise UnsupportedError(str(unknown("checkpoint family", model_type, known, where)))
    return known[model_type]
