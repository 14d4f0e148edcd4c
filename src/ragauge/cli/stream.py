"""Measure methods on a stream of questions whose documents come back, with a store on disk or in
memory.
"""

import argparse

from ragauge.cli import _timing
from ragauge.config.protocols import StreamSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, StreamSettings, {"methods", "dataset", "models", "threads"})


def run(args: argparse.Namespace) -> None:
    from ragauge.measure import timing
    from ragauge.measure.protocols import served, stream

    settings, variants, model, _, questions, seed = _timing.read(
        args, StreamSettings, lambda config: config.stream
    )
    assert questions is not None  # `stream` has no random weights
    if model.served:
        with _timing.served_bench(
            args, model, questions, settings.questions, settings.new_tokens
        ) as bench:
            result = served.measure_stream(variants, bench, settings, seed)
    else:
        local = timing.bench_of_questions(
            questions, settings.questions, model, settings.new_tokens, settings.threads
        )
        result = stream.measure_stream(
            variants, local, settings, folder=args.out.absolute().parent, seed=seed
        )
    _timing.write_result(args, result, result.streams, "\n".join(map(stream.line, result.streams)))
