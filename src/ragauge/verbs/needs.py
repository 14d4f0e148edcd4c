"""Say what an experiment takes before it is run: downloads, memory, disk and GPU hours at the least, as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ragauge needs`."""
    parser.add_argument("config", type=Path, metavar="CONFIG")


def run(args: argparse.Namespace) -> None:
    """Print the tables."""
    from ragauge.evaluation import needs
    from ragauge.experiment import schema

    checked = schema.load(args.config)
    print(needs.markdown(checked), end="")
