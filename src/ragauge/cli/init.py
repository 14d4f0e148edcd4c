"""Write the workflow's files and a configuration, or an example's documents, into a new folder; no
clone is needed.
"""

import argparse
import shlex
import shutil
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.io.files import os_errors_as_user_errors
from ragauge.io.folders import check_replaceable

WRITTEN = (
    "Snakefile",
    "workflow",
    "profiles",
    "envs",
    "config.yaml",
    "configs/full.yaml",
    "configs/ci/smoke.yaml",
)
EXAMPLES = ("documents", "questions.csv")
STUDY = (
    "ragauge study --documents {folder}/documents --questions {folder}/questions.csv "
    "--model smollm2-135m-instruct --out study --budget 10m"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a new or an empty folder")
    parser.add_argument(
        "--example",
        action="store_true",
        help="in place of a workflow, documents and questions for `ragauge study`",
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.config.launch.files import workflow_files
    from ragauge.study.settings import EXAMPLE

    folder: Path = args.folder
    source, written = (EXAMPLE, EXAMPLES) if args.example else (workflow_files(), WRITTEN)
    check_replaceable(folder, lambda _: False)
    with os_errors_as_user_errors(folder):
        for name in written:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (source / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.def", "requirements-*.txt")
                shutil.copytree(source / name, folder / name, ignore=ignored)
            else:
                shutil.copy(source / name, folder / name)
    next_step = "edit its config.yaml, and run it there: snakemake --cores all"
    if args.example:
        next_step = f"compare methods on it: {STUDY.format(folder=shlex.quote(str(folder)))}"
    options.print_result(
        args, f"wrote {folder}; {next_step}", folder=str(folder), files=sorted(written)
    )
