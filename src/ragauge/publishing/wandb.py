"""Weights & Biases, offline: a folder a variant that `wandb sync` uploads.

Their format is a log of the package's own messages, so the package writes it; it is no dependency of ragauge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.publishing import RunPlace
from ragauge.publishing.tracked import Tracked, tracked
from ragauge.results.runs import Runs


def write(runs: Runs, place: RunPlace, folder: Path) -> None:
    """Fill a folder with `wandb/offline-run-*`: parameters and provenance as configuration, metrics as summary.

    Raises:
        UserError: the package wandb is not installed.
    """
    package = _package()
    with _offline():
        for variant in runs.run:
            _write_run(package, tracked(runs, variant), place.run, folder)


def _package() -> Any:
    try:
        return import_module("wandb")
    except ImportError:
        raise UserError(
            "publish wandb: requires the package wandb, which writes its own format: pip install wandb"
        ) from None


def _write_run(package: Any, each: Tracked, project: str, folder: Path) -> None:
    settings = package.Settings(
        console="off", disable_code=True, disable_git=True, save_code=False, silent=True, x_disable_meta=True
    )
    begun = package.init(
        mode="offline",
        dir=folder,
        project=project,
        name=each.name,
        id=each.id[:8],
        config={**each.parameters, "provenance": dict(each.provenance)},
        settings=settings,
    )
    begun.log(dict(each.metrics))
    begun.finish()


@contextmanager
def _offline() -> Iterator[None]:
    """Whatever the user's environment says, nothing is sent and no errors are reported."""
    wanted = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
