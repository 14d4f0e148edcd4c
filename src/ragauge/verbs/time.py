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


PROTOCOL_OPTIONS = {"trials", "warmup", "documents", "tokens"}  # keys of a protocol that are options as they are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import LatencySettings

    options.add_measured(parser)
    parser.add_argument(
        "--random-weights",
        action="store_true",
        help=("random weights of the model's shape, on random tokens; --dataset then names token counts"),
    )
    options.add_settings(parser, LatencySettings, set(LatencySettings.model_fields) - PROTOCOL_OPTIONS)
    parser.add_argument(
        "--new-tokens", type=options.counts, metavar="N,...", help="tokens generated in a trial, one run per number (5)"
    )
    parser.add_argument(
        "--prompts", type=options.count, default=3, metavar="N", help=("prompts over which the trials are divided (3)")
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE.json", help=("file written by `ragauge machine`; default: measure now")
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import gap, machine
    from ragauge.evaluation import costing

    config = options.configuration(args)
    protocol = _protocol(args, config)
    variants = options.variants(args, protocol.methods, config)
    common = {
        "new_tokens": protocol.all_new_tokens,
        "trials": protocol.trials,
        "warmup": protocol.warmup,
        "threads": protocol.threads,
        "machine": machine.read(args.machine) if args.machine else None,
        "allow_load": protocol.allow_load,
        "folder": args.out.parent,
        "documents_cold": protocol.documents == "cold",
    }
    model = options.model(args, config, known=not args.random_weights)
    options.check_timed(args, model)
    if args.random_weights:
        result = costing.time_shape(variants, args.dataset, model, **common)
    else:
        questions = options.questions(args, config)
        result = costing.time_model(variants, questions, args.prompts, model, tokens=protocol.tokens, **common)
    options.write_json(args.out, result)
    for one in (result, *result["other_lengths"]):
        if one["refused"]:
            print(f"ragauge: warning: {args.out}: no summary: {one['refused']}", file=sys.stderr)
        if not args.json:
            print(gap.table(one))
    if args.json:
        options.show({"out": args.out, **result}, as_json=True)


def _protocol(args: argparse.Namespace, config: Config | None) -> LatencySettings:
    """The protocol of the configuration, if there is one, overridden by the options."""
    from ragauge.cost.settings import LatencySettings
    from ragauge.experiment.reading import checked_options

    configured = options.protocol(args.dataset, config)
    made = configured.model_dump() if configured else {"dataset": args.dataset}
    stated = {"methods": args.methods, "threads": args.threads, "allow_load": args.allow_load}
    apart = {*stated, "new_tokens"}
    made |= {key: value for key, value in stated.items() if value} | options.given(args, LatencySettings, apart)
    if args.new_tokens:
        made |= {"new_tokens": args.new_tokens[0], "more_new_tokens": args.new_tokens[1:]}
    if not made.get("methods"):
        raise UserError("--methods: name the methods to time, as in --methods naive,superposition")
    return checked_options(LatencySettings, made)
