"""Measure methods on a stream of questions whose documents come back, with a store on disk or in
memory.
"""

import argparse
from functools import partial
from typing import Any

from ragauge.cli import _timing
from ragauge.config.protocols import StreamSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, StreamSettings)


def run(args: argparse.Namespace) -> None:
    from ragauge.measure.protocols import served, stream

    settings, variants, model, _, questions, seed = _timing.read(
        args, StreamSettings, lambda config: config.stream
    )
    assert questions is not None  # `stream` has no random weights
    here = partial(stream.measure_stream, folder=args.out.absolute().parent)
    measure: Any = served.measure_stream if model.served else here
    number = settings.questions
    with _timing.bench(args, settings, model, questions, number, settings.new_tokens) as bench:
        result = measure(variants, bench, settings, seed=seed)
    _timing.write_result(args, result, result.streams, "\n".join(map(stream.line, result.streams)))
