"""Measure methods on a stream of questions whose documents come back, with a store on disk or in memory."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options
from ragauge.verbs import _timing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import StreamSettings

    options.add_measured(parser)
    options.add_settings(parser, StreamSettings, {"methods", "dataset", "threads"})


def run(args: argparse.Namespace) -> None:
    from ragauge.cost.settings import StreamSettings
    from ragauge.evaluation import stream, timing

    config = options.configuration(args)
    configured = config.stream if config else None
    measurement = _timing.read(args, config, StreamSettings, configured, _timing.given(args, StreamSettings))
    settings = measurement.settings
    assert measurement.questions is not None  # `stream` has no random weights
    count, threads = settings.questions, settings.threads
    bench = timing.bench_of_questions(measurement.questions, count, measurement.model, settings.new_tokens, threads)
    folder, allow_load = args.out.absolute().parent, args.allow_load
    result = stream.measure_stream(
        measurement.variants, bench, settings, folder=folder, seed=measurement.seed, allow_load=allow_load
    )
    _timing.tell(args, result, result["streams"], "\n".join(map(stream.line, result["streams"])))
