"""Compute the cycles, FLOPs and cache bytes of a method on a model, without weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ragauge.cost.hardware import CACHE_TYPES, DTYPES, WEIGHTS, Precision
from ragauge.errors import UserError
from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model whose shape is known, or a local checkpoint")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--method", help="a method that answers questions")
    what.add_argument("--schedule", help="a schedule of generation with retrieval, as in a pipeline")
    what.add_argument(
        "--published",
        action="store_true",
        help="every row of the papers' tables with compute cycles, predicted from the shapes of the papers' models",
    )
    parser.add_argument("--top-k", type=options.count, metavar="K", help="short for --set top_k=K")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the method or the schedule"
    )
    parser.add_argument("--tokens", default="nq_open", help="token counts: nq_open, musique or a JSON or YAML file")
    parser.add_argument("--new-tokens", type=options.count, default=1, metavar="N", help="tokens generated (1)")
    parser.add_argument("--accounting", default="critical_path", help="critical_path, total or published")
    parser.add_argument(
        "--dtype", choices=DTYPES, default="bfloat16", help="data type of what is not quantised (bfloat16)"
    )
    parser.add_argument("--weights", choices=WEIGHTS, default="full", help="storage of matrices (full)")
    parser.add_argument("--kv", choices=CACHE_TYPES, default="full", help="storage of keys and values (full)")
    parser.add_argument(
        "--counter",
        choices=("closed_form", "fvcore"),
        default="closed_form",
        help="fvcore: also run the method's calls under the papers' counter and print both counts (closed_form)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the result there; default: print it")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    result = _result(args)
    if args.out:
        options.write_json(args.out, result)
        options.tell(args, args.out, out=args.out)
    else:
        options.show(result, args.json)


def _result(args: argparse.Namespace) -> dict[str, Any]:
    params = options.settings(args.set, "--set")
    if args.published == bool(args.model):
        raise UserError("--model: must be given with --method or --schedule, and with these alone")
    if args.published:
        from ragauge.evaluation import predictions

        return predictions.predict()
    if args.schedule and args.counter == "fvcore":
        raise UserError("--counter fvcore: counts the calls of a --method, not of a --schedule")
    return _schedule(args, params) if args.schedule else _method(args, params)


def _schedule(args: argparse.Namespace, params: dict[str, Any]) -> dict[str, Any]:
    """A pipeline's cost: RETRO with the sizes of its paper, any other decoder as one that reads neighbours itself."""
    from ragauge.evaluation.timing import shape_of
    from ragauge.experiment.reading import checked
    from ragauge.generation import cost
    from ragauge.generation.settings import PipelineSettings
    from ragauge.generation.sizes import PAPER

    entry = checked(PipelineSettings, {**params, "schedule": args.schedule}, "--set")
    return {"model": args.model, **cost.report(entry, PAPER if args.model == "retro" else shape_of(args.model))}


def _method(args: argparse.Namespace, params: dict[str, Any]) -> dict[str, Any]:
    from ragauge.evaluation import costing

    if args.top_k is not None:
        params["top_k"] = args.top_k
    options.check_name("method", args.method)
    from ragauge import methods

    method = methods.make(args.method, where=f"--method {args.method}", **params)
    precision = Precision(args.dtype, args.weights, args.kv)
    common = (args.tokens, args.new_tokens, args.accounting, precision, args.counter)
    return costing.project(args.method, method, args.model, *common)
