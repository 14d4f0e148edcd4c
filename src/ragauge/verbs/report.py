"""Write a run's report: one self-contained page with figures, tables, records and recommendations."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run_folders(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge import report

    page = report.write(*options.rendered_run(args))
    options.tell(args, page, out=page)
