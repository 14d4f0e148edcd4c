"""Measure methods on a stream of questions whose documents come back, with a store on disk or in memory."""

import argparse

from ragauge.cli import _timing
from ragauge.cost.settings import StreamSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, StreamSettings, {"methods", "dataset", "models", "threads"})


def run(args: argparse.Namespace) -> None:
    from ragauge.measure import stream, timing

    settings, variants, model, questions, seed = _timing.read(args, StreamSettings, lambda config: config.stream)
    assert questions is not None  # `stream` has no random weights
    if model.served:
        from ragauge.measure import served, served_load

        with (
            _timing.serving(args, model),
            served.bench(questions, settings.questions, model, settings.new_tokens) as remote,
        ):
            result = served_load.measure_stream(variants, remote, settings, seed=seed)
        _timing.write_result(args, result, result["streams"], "\n".join(map(stream.line, result["streams"])))
        return
    bench = timing.bench_of_questions(questions, settings.questions, model, settings.new_tokens, settings.threads)
    result = stream.measure_stream(variants, bench, settings, folder=args.out.absolute().parent, seed=seed)
    _timing.write_result(args, result, result["streams"], "\n".join(map(stream.line, result["streams"])))
