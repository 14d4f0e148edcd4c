"""Estimate an experiment's downloads, memory, disk and minimum GPU hours before it is run, as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG")


def run(args: argparse.Namespace) -> None:
    """Print the tables."""
    from ragauge.evaluation import needs
    from ragauge.experiment import schema

    checked = schema.load(args.config)
    print(needs.markdown(checked), end="")
