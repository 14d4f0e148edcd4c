"""Estimate what an experiment takes: downloads, disk, memory, and time on this machine, measured
for a minute.
"""

import argparse
from pathlib import Path

from ragauge.cli import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the configuration")
    shapes = "measure nothing: lower bounds of GPU time from the models' shapes and the data sheet of an A100"
    parser.add_argument("--from-shapes", action="store_true", help=shapes)
    parser.add_argument(
        "--cores",
        type=options.count,
        metavar="N",
        help="cores of the run; default: all of this machine",
    )
    parser.add_argument(
        "--brief", action="store_true", help="print one line: the time, and what it is made of"
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.config import loading
    from ragauge.measure.protocols import estimate

    config = loading.load(args.config)
    machine = estimate.DATA_SHEET if args.from_shapes else estimate.machine_for(config, args.cores)
    estimated = estimate.estimate(config, machine)
    text = estimate.brief(estimated) if args.brief else estimate.text(estimated)
    options.print_result(args, text, **estimated.to_json())
