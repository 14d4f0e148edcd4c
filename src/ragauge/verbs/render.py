"""Render a table or figure of a paper from the records of a run."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", help="as in `ragauge list items`")
    options.add_run_folders(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.rendering import render

    paths = render.render(args.item, *options.rendered_run(args))
    options.tell(args, "\n".join(map(str, paths)), item=args.item, out=paths)
