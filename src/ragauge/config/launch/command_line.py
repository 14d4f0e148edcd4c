"""The configuration of a run, from Snakemake's files and options."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.config import loading
from ragauge.config.experiment import Config
from ragauge.io import safe_yaml


def experiment(
    merged: Mapping[str, Any], files: Sequence[str], changes: Mapping[str, Any] | None
) -> Config:
    """Check the configuration of a run.

    Args:
        merged: the configuration as Snakemake has it.
        files: each is read again for what `merged` does not show, such as a key that stands twice.
        changes: those of the command line (`--config`).

    Raises:
        UserError: the first mistake.
    """
    for path in files:
        loading.read(Path(path))
    place = os.path.relpath(files[-1]) if files else "--config"
    return loading.parse(retyped(merged, changes or {}), place)


def retyped(data: Any, changes: Any) -> Any:
    """Return `data` with the command line's values in their types: Snakemake reads nested ones as
    text.
    """
    if isinstance(changes, Mapping):
        return {
            key: retyped(value, changes[key]) if key in changes else value
            for key, value in data.items()
        }
    if isinstance(changes, list):
        return [retyped(value, value) for value in changes]
    return safe_yaml.load(changes) if isinstance(changes, str) else changes
