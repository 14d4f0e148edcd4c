"""Write a run's report: one self-contained page with figures, tables, records and what to choose."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run-config", type=Path, required=True, metavar="FILE.yaml", help="the run's configuration")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="its records; default: results/<run>")
    parser.add_argument(
        "--out-dir", type=Path, metavar="FOLDER", help="its rendered items, and the page; default: reports/<run>"
    )


def run(args: argparse.Namespace) -> None:
    from ragauge import config, report

    settings = config.load(args.run_config)
    results = args.results or Path("results") / settings.run
    print(report.write(settings, results, args.out_dir or Path("reports") / settings.run))
