"""Measure methods under load: Poisson arrivals at given rates, or clients that ask one question after another."""

import argparse
from typing import Any

from ragauge.cli import _timing
from ragauge.cost.settings import LoadSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _timing.add_measured(parser, LoadSettings, {"methods", "dataset", "models", "threads"})


def run(args: argparse.Namespace) -> None:
    from ragauge.measure import load, served, timing

    def levels(stated: dict[str, Any]) -> dict[str, Any]:
        return {"rates": [], "clients": [], **stated} if stated.keys() & {"rates", "clients"} else stated

    settings, variants, model, questions, seed = _timing.read(args, LoadSettings, lambda config: config.load, levels)
    assert questions is not None  # `load` has no random weights
    if model.served:
        with _timing.served_bench(args, model, questions, settings.prompts, settings.new_tokens) as bench:
            result = served.measure_load(variants, bench, settings, seed)
    else:
        local = timing.bench_of_questions(questions, settings.prompts, model, settings.new_tokens, settings.threads)
        result = load.measure_load(variants, local, settings, seed=seed)
    _timing.write_result(args, result, result["levels"], load.table(result))
