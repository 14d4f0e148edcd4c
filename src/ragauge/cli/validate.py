"""Check a configuration and print what it plans."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.io import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the configuration")


def run(args: argparse.Namespace) -> None:
    from ragauge.config import loading, sources

    config = loading.load(args.config)
    unpinned = sources.unpinned(config)
    if unpinned:
        progress.line(sources.NOT_PINNED.format(", ".join(unpinned)))
    options.print_result(
        args, config.overview(), run=config.run, plan=config.overview(), unpinned=unpinned
    )
