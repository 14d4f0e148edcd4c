"""The cache directory, which all experiments share."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """Return the cache directory, `$RAGAUGE_HOME` or `~/.cache/ragauge`."""
    return Path(os.environ.get("RAGAUGE_HOME") or "~/.cache/ragauge").expanduser().absolute()
