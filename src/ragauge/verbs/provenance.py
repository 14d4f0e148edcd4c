"""Write the settings, data, code and machine behind a run."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run_folders(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.rendering import render

    written = render.write_provenance(*options.rendered_run(args))
    options.tell(args, written, out=written)
