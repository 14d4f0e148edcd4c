"""Check a configuration and print what it plans."""

import argparse

from ragauge.cli import _options as options
from ragauge.io import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_only_config(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.config import sources

    config = options.configuration(args)
    assert config  # which is required
    if unpinned := sources.unpinned(config):
        progress.line(sources.NOT_PINNED.format(", ".join(unpinned)))
    options.print_result(args, config.plan(), run=config.run, plan=config.plan(), unpinned=unpinned)
