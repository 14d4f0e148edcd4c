"""Measure methods under load: Poisson arrivals at given rates, or clients that ask one question after another."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options
from ragauge.verbs import _timing

LEVELS = ("rates", "clients")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import LoadSettings

    options.add_measured(parser)
    for name in LEVELS:
        text = LoadSettings.model_fields[name].description
        parser.add_argument(f"--{name}", type=options.names, metavar="N,...", default=argparse.SUPPRESS, help=text)
    options.add_settings(parser, LoadSettings, {"methods", "dataset", "threads", *LEVELS})


def run(args: argparse.Namespace) -> None:
    from ragauge.cost.settings import LoadSettings
    from ragauge.evaluation import load, timing

    config = options.configuration(args)
    changes = _timing.given(args, LoadSettings)
    if any(name in changes for name in LEVELS):
        changes = {"rates": [], "clients": [], **changes}
    measurement = _timing.read(args, config, LoadSettings, config.load if config else None, changes)
    settings = measurement.settings
    assert measurement.questions is not None  # `load` has no random weights
    count, threads = settings.prompts, settings.threads
    bench = timing.bench_of_questions(measurement.questions, count, measurement.model, settings.new_tokens, threads)
    result = load.measure_load(measurement.variants, bench, settings, seed=measurement.seed, allow_load=args.allow_load)
    _timing.tell(args, result, result["levels"], load.table(result))
