"""Compute what a method costs from the shape of a model, and predict seconds on a GPU."""

import argparse
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.cli import _options as options
from ragauge.config.reading import checked, read
from ragauge.cost import accelerators
from ragauge.cost.hardware import CACHE_TYPES, DTYPES, WEIGHTS, Precision
from ragauge.errors import UserError, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", help="a model whose shape is known, or a local checkpoint")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--method", help="a method that answers questions")
    what.add_argument(
        "--published",
        action="store_true",
        help=(
            "predict every row of the papers' tables with compute cycles from the shapes of the "
            "papers' models"
        ),
    )
    add("--top-k", type=options.count, metavar="K", help="short for --set top_k=K")
    options.add_set(parser, "a parameter of the method")
    add("--tokens", default="nq_open", help="token counts: nq_open, musique or a JSON or YAML file")
    add(
        "--new-tokens",
        type=options.count,
        metavar="N",
        help="tokens generated (1; with --hardware 100)",
    )
    add("--accounting", default="critical_path", help="critical_path, total or published")
    add(
        "--dtype",
        choices=DTYPES,
        default="bfloat16",
        help="data type of what is not quantised (bfloat16)",
    )
    add("--weights", choices=WEIGHTS, default="full", help="storage of matrices (full)")
    add("--kv", choices=CACHE_TYPES, default="full", help="storage of keys and values (full)")
    add(
        "--hardware",
        metavar="NAME-OR-FILE",
        help=(
            "with --method: predict seconds there, from data-sheet rates: h100, a100, l40s or a "
            "YAML file of such rates"
        ),
    )
    add(
        "--price",
        type=options.amount,
        metavar="PER_HOUR",
        help="with --hardware: the price of an hour of it, for the cost of 1,000 answers",
    )
    add("--out", type=Path, metavar="FILE.json", help="write the result there; default: print it")


def run(args: argparse.Namespace) -> None:
    result = _result(args)
    predicted = result.get("prediction")
    text = accelerators.table(predicted) if predicted else options.readable(result)
    if args.out:
        options.write_json(args.out, result)
        result = {"out": args.out}
    options.print_result(args, args.out or text, **result)


def _result(args: argparse.Namespace) -> dict[str, Any]:
    params, _ = options.settings(args.set)
    if (args.hardware and not args.method) or (args.price is not None and not args.hardware):
        raise UserError("--hardware: must be given with --method, and --price with --hardware")
    if args.published == bool(args.model):
        raise UserError("--model: must be given with --method, and with it alone")
    if args.published:
        from ragauge.measure import predictions

        return predictions.predict()
    registry.module_name("method", args.method, "--method")  # before anything heavy is imported
    hardware = _accelerator(args.hardware) if args.hardware else None
    from ragauge.measure import costing
    from ragauge.methods.base import making

    params |= {"top_k": args.top_k} if args.top_k else {}
    method = making.make(args.method, where=f"--method {args.method}", **params)
    precision = Precision(args.dtype, args.weights, args.kv)
    new_tokens = args.new_tokens or (100 if hardware else 1)
    counted = (args.tokens, new_tokens, args.accounting, precision)
    return costing.project(args.method, method, args.model, *counted, hardware, args.price)


def _accelerator(name: str) -> accelerators.Accelerator:
    known = accelerators.known()
    if name not in known and not Path(name).is_file():
        problem = unknown("hardware", name, known, "--hardware")
        raise UserError(f"{problem}, or a YAML file of its rates")
    return known.get(name) or checked(accelerators.Accelerator, read(Path(name)), name)
