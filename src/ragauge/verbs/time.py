"""Time methods side by side by the latency protocol."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ragauge.errors import UserError
from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", type=options.names, metavar="M,...", help="methods; with --config, variants of it")
    options.add_method_options(parser)
    options.add_questions(parser)
    options.add_materialised(parser)
    options.add_model(parser)
    parser.add_argument(
        "--random-weights",
        action="store_true",
        help=("a model by its shape, on random tokens; --dataset then names token counts"),
    )
    parser.add_argument("--trials", type=options.count, metavar="N", help="timed trials a method (30)")
    parser.add_argument("--warmup", type=options.count, metavar="N", help="untimed trials a method before them (2)")
    parser.add_argument(
        "--new-tokens", type=options.counts, metavar="N,...", help="tokens generated in a trial, one run a number (5)"
    )
    parser.add_argument(
        "--prompts", type=options.count, default=3, metavar="N", help=("different prompts that share the trials (3)")
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE.json", help=("what `ragauge machine` wrote; measured anew by default")
    )
    parser.add_argument(
        "--documents",
        choices=("ready", "cold"),
        help="cold: time them also as they are computed, kept on the disk of --out and read from there (ready)",
    )
    parser.add_argument("--allow-load", action="store_true", help="report although other processes were busy")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import gap, latency, machine
    from ragauge.evaluation import costing

    config = options.configuration(args)
    protocol = options.protocol(args.dataset, config)
    names = options.first(args.methods, protocol.methods if protocol else None)
    if not names:
        raise UserError("--methods: name the methods to time, as in --methods naive,superposition")
    variants = {name: options.method(options.variant(args, name, config), name, config, args) for name in names}
    cold = options.first(args.documents, protocol.documents if protocol else None) == "cold"
    common = {
        "new_tokens": options.first(args.new_tokens, protocol.all_new_tokens if protocol else None, [5]),
        "trials": options.first(args.trials, protocol.trials if protocol else None, 30),
        "warmup": options.first(args.warmup, protocol.warmup if protocol else None, 2),
        "threads": options.first(args.threads, protocol.threads if protocol else None),
        "machine": machine.read(args.machine) if args.machine else None,
        "allow_load": args.allow_load,
        "folder": args.out.parent,
        "documents_cold": cold,
    }
    model = options.model(args, config, known=not args.random_weights)
    if model.finder:
        raise UserError(f"--model: {args.model} answers from what another model finds, which is not timed")
    if args.random_weights:
        result = costing.time_shape(variants, args.dataset, model, **common)
    else:
        result = costing.time_model(variants, options.questions(args, config), args.prompts, model, **common)
    latency.save(result, args.out)
    for one in (result, *result["other_lengths"]):
        if one["refused"]:
            print(f"ragauge: warning: {args.out}: no summary: {one['refused']}", file=sys.stderr)
        print(gap.table(one))
