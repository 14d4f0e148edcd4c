"""Measure methods under load: Poisson arrivals, clients that ask one question after another, or a
replayed trace.
"""

import argparse
import shutil
from dataclasses import replace
from typing import Any

from ragauge.cli import _timing
from ragauge.config.protocols import LoadSettings

OTHER_SPELLINGS = {
    "--target-first-token": "target_first_token_s",
    "--target-per-token": "target_per_token_s",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, LoadSettings)
    # short spellings
    for option, key in OTHER_SPELLINGS.items():
        parser.add_argument(option, dest=key, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    from ragauge.cost.machine import provenance
    from ragauge.io.files import text_sha256
    from ragauge.measure import timing
    from ragauge.measure.protocols import load, served

    def levels(stated: dict[str, Any]) -> dict[str, Any]:
        none: dict[str, Any] = {"rates": [], "clients": [], "speeds": [], "find": False}
        return {**none, **stated} if stated.keys() & none.keys() else stated

    settings, variants, model, _, questions, seed = _timing.read(
        args, LoadSettings, lambda config: config.load, levels
    )
    assert questions is not None  # `load` has no random weights
    questions = replace(questions, turns=settings.turns)
    number = settings.prompts * settings.turns
    if settings.speeds:
        number = settings.requests_of_level
    finished = args.out.with_suffix(".levels")  # what an interrupted run leaves
    measure: Any = served.measure_load if model.served else load.measure_load
    with _timing.bench(args, settings, model, questions, number, settings.new_tokens) as bench:
        if settings.speeds:
            context = bench.engine.max_context
            trace = timing.trace_of(questions, bench.prompts, context, settings)
            bench = replace(bench, trace=trace)
        machine = {**provenance(), "time": 0, "gpu": 0}  # which change in a minute
        same = repr([settings, variants, model, questions, bench.prompts, seed, machine])
        result = measure(variants, bench, settings, finished / text_sha256(same)[:16], seed)
    _timing.write_result(args, result, result.levels, load.table(result))
    shutil.rmtree(finished)
