"""A run in the forms that other tools read: MLflow, Weights & Biases, RO-Crate. Files only; nothing is sent anywhere.

A form is a file here with `write(runs, place, folder)`, which fills a folder from what a run left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import write_file
from ragauge.results.runs import Runs

FORMS = ("crate", "mlflow", "wandb")
MADE = b'{"published": true}\n'  # what marks a folder that this room wrote


@dataclass(frozen=True)
class RunPlace:
    """Where the files of a run lie, and what is said of them."""

    run: str
    config: Path
    results: Path
    reports: Path
    out: Path  # where the folder will stand
    license: str | None = None  # an SPDX identifier; None: nobody has stated one


def write(form: str, runs: Runs, place: RunPlace) -> None:
    """Write a run in a form, whole or not at all.

    Raises:
        UserError: the run has no records, the form requires a package that is not installed, or another folder stands
            there.
    """
    if not runs.run:
        raise UserError(f"{place.results}: holds no records: no answers/DATASET/MODEL/VARIANT.jsonl")
    fill: Callable[[Runs, RunPlace, Path], None] = import_module(f"ragauge.publishing.{form}").write
    folders.check_replaceable(place.out, _is_ours)

    def marked(folder: Path) -> None:
        fill(runs, place, folder)
        write_file(folder / folders.MARK, MADE)

    try:
        with folders.locked(place.out):
            folders.replace(place.out, marked, _is_ours)
    except OSError as error:
        raise UserError(f"{error.filename or place.out}: cannot be written: {error.strerror or error}") from error


def _is_ours(folder: Path) -> bool:
    mark = folder / folders.MARK
    return mark.is_file() and mark.read_bytes() == MADE
