"""Check a configuration and print what it plans."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_its_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    config = options.its_config(args)
    options.tell(args, config.plan(), run=config.run, plan=config.plan())
