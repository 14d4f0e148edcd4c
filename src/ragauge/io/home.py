"""The folder of everything that is kept for all experiments."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$RAGAUGE_HOME`, or `~/.cache/ragauge`."""
    return Path(os.environ.get("RAGAUGE_HOME") or "~/.cache/ragauge").expanduser().absolute()
