"""Write the state of reproduction: what became of every number that the papers print.

Needs neither records nor weights: it reads committed tables and what a configuration plans.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("configs/papers/paper.yaml"),
        metavar="FILE.yaml",
        help="the papers' experiments",
    )
    parser.add_argument("--reports", type=Path, default=Path("reports"), metavar="FOLDER", help="rendered tables")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="default: index.md in the folder of reports")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.evaluation.predictions import predict
    from ragauge.experiment import loading
    from ragauge.io.files import write_file
    from ragauge.report.reproduction import page
    from ragauge.results.planned import planned

    runs = planned(loading.load(args.config), predict()["rows"])
    out = args.out or args.reports / "index.md"
    write_file(out, page(runs, args.reports).encode())
    options.tell(args, out, out=out)
