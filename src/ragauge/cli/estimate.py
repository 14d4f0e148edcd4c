"""Estimate what an experiment takes on this machine, from a question of each variant."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the configuration")


def run(args: argparse.Namespace) -> None:
    from ragauge.config import loading
    from ragauge.measure.protocols import estimate

    config = loading.load(args.config)
    estimated = estimate.estimate(config, estimate.measure(config))
    options.print_result(args, "\n".join(estimated.lines()), **estimated.to_json())
