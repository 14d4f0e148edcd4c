"""Write a run as an RO-Crate: a described archive to cite. Nothing is sent anywhere."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
    add("--results", type=Path, metavar="FOLDER", help="default: results/<run>")
    add("--reports", type=Path, metavar="FOLDER", help="the rendered run; default: reports/<run>")
    add("--license", metavar="SPDX", help="licence of the files, such as CC-BY-4.0; default: not stated")
    add("--out", type=Path, required=True, metavar="FOLDER", help="a new folder, or one that this verb wrote")


def run(args: argparse.Namespace) -> None:
    from ragauge.report import crate
    from ragauge.results.runs import Runs

    config = loading.load(args.config)
    runs = Runs(args.results or Path("results") / config.run, config)
    crate.write(runs, args.config, args.reports or Path("reports") / config.run, args.out, args.license)
    options.print_result(args, args.out, out=str(args.out), variants=len(runs.run))
