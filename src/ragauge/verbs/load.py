"""Measure methods under load: Poisson arrivals at given rates, or clients that ask one question after another."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.cost.settings import LoadSettings
    from ragauge.experiment.schema import Config

LISTS = {"methods", "rates", "clients"}
APART = LISTS | {"dataset", "threads"}  # options of other groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import LoadSettings

    options.add_measured(parser)
    for name in ("rates", "clients"):
        told = LoadSettings.model_fields[name].description
        parser.add_argument(f"--{name}", type=options.names, metavar="N,...", default=argparse.SUPPRESS, help=told)
    options.add_settings(parser, LoadSettings, APART)


def run(args: argparse.Namespace) -> None:
    config = options.configuration(args)
    settings = _settings(args, config)
    variants = options.variants(args, settings.methods, config)
    model = options.model(args, config)
    options.check_timed(args, model)
    questions = options.questions(args, config)

    from ragauge.cost import load
    from ragauge.evaluation import under_load

    seed = options.first(args.seed, config.seed if config else None, 0)
    result = under_load.load_model(variants, questions, model, settings, seed=seed, allow_load=args.allow_load)
    options.write_json(args.out, result)
    refused = [level for level in result["levels"] if level["refused"]]
    if refused:
        told = f"no summary of {len(refused)} of {len(result['levels'])} levels: {refused[0]['refused']}"
        print(f"ragauge: warning: {args.out}: {told}", file=sys.stderr)
    options.tell(args, load.table(result), out=args.out, levels=result["levels"])


def _settings(args: argparse.Namespace, config: Config | None) -> LoadSettings:
    """The protocol of the configuration, if there is one, overridden by the options."""
    from ragauge.cost.settings import LoadSettings
    from ragauge.experiment.reading import checked_options

    made = config.load.model_dump() if config and config.load else {"dataset": args.dataset}
    stated = {"methods": args.methods, "threads": args.threads}
    levels = options.given(args, LoadSettings, set(LoadSettings.model_fields) - {"rates", "clients"})
    if levels:
        made |= {"rates": [], "clients": []}
    made |= {key: value for key, value in stated.items() if value} | options.given(args, LoadSettings, set(stated))
    if not made.get("methods"):
        raise UserError("--methods: name the methods to measure, as in --methods bm25,superposition")
    return checked_options(LoadSettings, made)
