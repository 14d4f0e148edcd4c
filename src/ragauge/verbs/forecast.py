"""Forecast an experiment's wall time, disk and memory on this machine, from a minute of measurement."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_its_config(parser)
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="results of a run to compare with; default: results/<run>"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Measure, and print what is expected."""
    from ragauge.evaluation import forecast
    from ragauge.evaluation.forecast_text import text

    config = options.its_config(args)
    made = forecast.forecast(config, forecast.measured(config))
    results = args.results or Path("results") / config.run
    took = forecast.took(config, results) if results.is_dir() else {}
    options.tell(args, text(made, took), **made.to_json(), took_s=took)
