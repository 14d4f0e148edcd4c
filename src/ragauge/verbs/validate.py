"""Check a configuration and print what it plans."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG")


def run(args: argparse.Namespace) -> None:
    from ragauge.experiment import schema

    print(schema.load(args.config).plan())
