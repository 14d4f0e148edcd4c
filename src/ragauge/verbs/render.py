"""Render a table or figure of a paper from the records of a run."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item")
    options.add_run_folders(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.rendering import render

    for path in render.render(args.item, *options.rendered_run(args)):
        print(path)
