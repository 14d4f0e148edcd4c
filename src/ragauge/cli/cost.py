"""Compute the cycles, FLOPs and cache bytes of a method on a model, without weights."""

import argparse
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.cli import _options as options
from ragauge.config.reading import checked, read
from ragauge.cost import accelerators
from ragauge.cost.hardware import CACHE_TYPES, DTYPES, WEIGHTS, Precision
from ragauge.cost.roofline import SERVERS
from ragauge.errors import UserError, unknown
from ragauge.pipelines.settings import PipelineSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", help="a model whose shape is known, or a local checkpoint")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--method", help="a method that answers questions")
    what.add_argument(
        "--schedule", help="a schedule of generation with retrieval, as in a pipeline"
    )
    published = "predict every row of the papers' tables with compute cycles from the shapes of the papers' models"
    what.add_argument("--published", action="store_true", help=published)
    searched = "with --schedule: bound the seconds of searching the index of PipeRAG's paper, 3 billion vectors, there"
    add("--search-machine", choices=SERVERS, help=searched)
    add("--top-k", type=options.count, metavar="K", help="short for --set top_k=K")
    options.add_set(parser, "a parameter of the method or the schedule")
    add("--tokens", default="nq_open", help="token counts: nq_open, musique or a JSON or YAML file")
    text = "tokens generated (1; with --hardware 100)"
    add("--new-tokens", type=options.count, metavar="N", help=text)
    add("--accounting", default="critical_path", help="critical_path, total or published")
    add(
        "--dtype",
        choices=DTYPES,
        default="bfloat16",
        help="data type of what is not quantised (bfloat16)",
    )
    add("--weights", choices=WEIGHTS, default="full", help="storage of matrices (full)")
    add("--kv", choices=CACHE_TYPES, default="full", help="storage of keys and values (full)")
    text = "fvcore: also count the method's calls by the papers' counter (closed_form)"
    add("--counter", choices=("closed_form", "fvcore"), default="closed_form", help=text)
    text = "with --method: predict seconds there, from data-sheet rates: h100, a100, l40s or a YAML file of such rates"
    add("--hardware", metavar="NAME-OR-FILE", help=text)
    text = "with --hardware: the price of an hour of it, for the cost of 1,000 answers"
    add("--price", type=options.amount, metavar="PER_HOUR", help=text)
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
        raise UserError("--model: must be given with --method or --schedule, and with these alone")
    if args.published:
        from ragauge.measure import predictions

        return predictions.predict()
    if args.schedule:
        if args.counter == "fvcore":
            raise UserError("--counter fvcore: counts the calls of a --method, not of a --schedule")
        from ragauge.measure.timing import shape_of
        from ragauge.pipelines import cost
        from ragauge.pipelines.sizes import PAPER

        entry = checked(PipelineSettings, {**params, "schedule": args.schedule}, "--set")
        # RETRO has the sizes of its paper; other decoders read the neighbours themselves.
        report = {
            "model": args.model,
            **cost.report(entry, PAPER if args.model == "retro" else shape_of(args.model)),
        }
        if not args.search_machine:
            return report
        from ragauge.pipelines.indexes.ivf_pq import IvfPq

        if not entry.queries_index:
            raise UserError(f"--search-machine: schedule {entry.schedule!r} asks no index")
        # and the width of its vectors (Appendix B)
        index = IvfPq(nlist=16384, pq_bytes=64), 3 * 10**9, 384
        return report | {"search": cost.search_floor(entry, *index, SERVERS[args.search_machine])}
    if args.search_machine:
        raise UserError("--search-machine: must be given with --schedule")
    registry.module_name("method", args.method, "--method")  # before anything heavy is imported
    hardware = _accelerator(args.hardware) if args.hardware else None
    from ragauge.measure import costing
    from ragauge.methods.base import making

    params |= {"top_k": args.top_k} if args.top_k else {}
    method = making.make(args.method, where=f"--method {args.method}", **params)
    precision = Precision(args.dtype, args.weights, args.kv)
    new_tokens = args.new_tokens or (100 if hardware else 1)
    counted = (args.tokens, new_tokens, args.accounting, precision, args.counter)
    return costing.project(args.method, method, args.model, *counted, hardware, args.price)


def _accelerator(name: str) -> accelerators.Accelerator:
    known = accelerators.known()
    if name in known:
        return known[name]
    if not Path(name).is_file():
        problem = unknown("hardware", name, known, "--hardware")
        raise UserError(f"{problem}, or a YAML file of its rates")
    return checked(accelerators.Accelerator, read(Path(name)), name)
