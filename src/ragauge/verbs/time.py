"""Time methods side by side by the latency protocol."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.cost.settings import LatencySettings
    from ragauge.experiment.schema import Config


PROTOCOL_OPTIONS = {"trials", "warmup", "documents"}  # keys of a protocol that are options as they are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import LatencySettings

    parser.add_argument("--methods", type=options.names, metavar="M,...", help="methods; with --config, variants of it")
    options.add_method_options(parser)
    options.add_questions(parser)
    options.add_materialised(parser)
    options.add_model(parser, {"engine"})
    parser.add_argument(
        "--random-weights",
        action="store_true",
        help=("a model by its shape, on random tokens; --dataset then names token counts"),
    )
    options.add_settings(parser, LatencySettings, set(LatencySettings.model_fields) - PROTOCOL_OPTIONS)
    parser.add_argument(
        "--new-tokens", type=options.counts, metavar="N,...", help="tokens generated in a trial, one run a number (5)"
    )
    parser.add_argument(
        "--prompts", type=options.count, default=3, metavar="N", help=("different prompts that share the trials (3)")
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE.json", help=("what `ragauge machine` wrote; default: measure now")
    )
    parser.add_argument("--allow-load", action="store_true", help="report times even if other processes were busy")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import gap, machine
    from ragauge.evaluation import costing

    config = options.configuration(args)
    protocol = _protocol(args, config)
    variants = {
        name: options.method(options.variant(args, name, config), name, config, args) for name in protocol.methods
    }
    common = {
        "new_tokens": protocol.all_new_tokens,
        "trials": protocol.trials,
        "warmup": protocol.warmup,
        "threads": protocol.threads,
        "machine": machine.read(args.machine) if args.machine else None,
        "allow_load": args.allow_load,
        "folder": args.out.parent,
        "documents_cold": protocol.documents == "cold",
    }
    model = options.model(args, config, known=not args.random_weights)
    options.check_timed(args, model)
    if args.random_weights:
        result = costing.time_shape(variants, args.dataset, model, **common)
    else:
        result = costing.time_model(variants, options.questions(args, config), args.prompts, model, **common)
    options.write_json(args.out, result)
    for one in (result, *result["other_lengths"]):
        if one["refused"]:
            print(f"ragauge: warning: {args.out}: no summary: {one['refused']}", file=sys.stderr)
        print(gap.table(one))


def _protocol(args: argparse.Namespace, config: Config | None) -> LatencySettings:
    """The protocol of the configuration, if there is one, with what the options say in its place."""
    from ragauge.cost.settings import LatencySettings
    from ragauge.experiment.reading import checked_options

    configured = options.protocol(args.dataset, config)
    made = configured.model_dump() if configured else {"dataset": args.dataset}
    stated = {"methods": args.methods, "threads": args.threads}
    apart = {*stated, "new_tokens"}
    made |= {key: value for key, value in stated.items() if value} | options.given(args, LatencySettings, apart)
    if args.new_tokens:
        made |= {"new_tokens": args.new_tokens[0], "more_new_tokens": args.new_tokens[1:]}
    if not made.get("methods"):
        raise UserError("--methods: name the methods to time, as in --methods naive,superposition")
    return checked_options(LatencySettings, made)
