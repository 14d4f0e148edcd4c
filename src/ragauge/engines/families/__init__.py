"""Checkpoint families: one file each, with `MODEL_TYPES`, `shape(config)` and the `NAMES` of its tensors."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from ragauge.errors import UnsupportedError, unknown


def family(model_type: str, where: str = "") -> ModuleType:
    """The module that reads checkpoints of this `model_type` (the key in their config.json)."""
    known = {t: m for m in _modules() for t in m.MODEL_TYPES}
    if model_type not in known:
        raise UnsupportedError(str(unknown("checkpoint family", model_type, known, where)))
    return known[model_type]


def _modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(__path__)
    return [importlib.import_module(f"{__name__}.{m.name}") for m in found if not m.name.startswith("_")]
