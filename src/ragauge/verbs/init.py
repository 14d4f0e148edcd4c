"""Write the workflow's files and a configuration into a new folder, so that an installed package needs no clone."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from ragauge.errors import UserError
from ragauge.verbs import _options as options

WRITTEN = ("Snakefile", "workflow", "profiles", "envs", "config.yaml", "configs/smoke.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a new or an empty folder")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.experiment.launch import workflow_files
    from ragauge.io.folders import check_replaceable

    source, folder = workflow_files(), args.folder
    check_replaceable(folder, lambda _: False)  # whatever stands there is the user's
    try:
        for name in WRITTEN:
            _copy(source / name, folder / name)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    told = f"wrote {folder}; edit its config.yaml, and run it there: snakemake --cores all"
    options.tell(args, told, folder=str(folder), files=sorted(WRITTEN))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.def"))
    else:
        shutil.copy(source, target)
