"""Measure methods under load: Poisson arrivals at given rates, or clients that ask one question after another."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
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

    parser.add_argument("--methods", type=options.names, metavar="M,...", help="methods; with --config, variants of it")
    options.add_method_options(parser)
    options.add_questions(parser)
    options.add_materialised(parser)
    options.add_model(parser, {"engine"})
    for name in ("rates", "clients"):
        told = LoadSettings.model_fields[name].description
        parser.add_argument(f"--{name}", type=options.names, metavar="N,...", default=argparse.SUPPRESS, help=told)
    options.add_settings(parser, LoadSettings, APART)
    parser.add_argument("--allow-load", action="store_true", help="report times even if other processes were busy")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    config = options.configuration(args)
    settings = _settings(args, config)
    variants = {
        name: options.method(options.variant(args, name, config), name, config, args) for name in settings.methods
    }
    model = options.model(args, config)
    options.check_timed(args, model)
    questions = options.questions(args, config)

    from ragauge.cost import load
    from ragauge.evaluation import loading

    seed = options.first(args.seed, config.seed if config else None, 0)
    result = loading.load_model(variants, questions, model, settings, seed=seed, allow_load=args.allow_load)
    options.write_json(args.out, result)
    refused = [level for level in result["levels"] if level["refused"]]
    if refused:
        told = f"no summary of {len(refused)} of {len(result['levels'])} levels: {refused[0]['refused']}"
        print(f"ragauge: warning: {args.out}: {told}", file=sys.stderr)
    print(load.table(result))


def _settings(args: argparse.Namespace, config: Config | None) -> LoadSettings:
    """The protocol of the configuration, if there is one, with what the options say in its place."""
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
