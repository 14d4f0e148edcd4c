"""`ragauge piperag export`: export a decoder that reads neighbours, or RETRO, to ONNX."""

import argparse
from dataclasses import replace
from pathlib import Path

from ragauge import registry
from ragauge.cli import _options as options
from ragauge.cost.hardware import ONNX_DTYPES
from ragauge.errors import UserError
from ragauge.generation import modes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, own = parser.add_argument, ", ".join(modes.with_option("weights"))
    add("--mode", default="joint", choices=registry.names("mode"), help="how neighbours are read (joint)")
    options.add_reader(parser)
    dtype = "data type of the export; float16 is for GPUs only (float32)"
    add("--dtype", default="float32", choices=ONNX_DTYPES["cuda"], help=dtype)
    add("--seed", type=int, default=0, help="seed of random weights (0)")
    options.add_database(parser, f"mode {own}: the chunk database, for its tokenizer", required=False)
    add("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    """Write the graphs, complete or not at all."""
    from ragauge.config.checks import check_source
    from ragauge.io import folders
    from ragauge.io.files import file_sha256
    from ragauge.retrieval.database import Database

    folders.check_replaceable(args.out, _is_export)
    mode = modes.make(args.mode, {})
    if "onnx" not in mode.engines:
        raise UserError(f"--mode {args.mode}: cannot be exported to ONNX")
    if mode.own_model and not args.database:
        raise UserError(f"--mode {args.mode}: requires --database, whose tokenizer sets the vocabulary")
    option, value = ("--adapters", args.adapters) if mode.own_model else ("--weights", args.weights)
    if value:
        raise UserError(f"{option}: not valid with mode {args.mode!r}")
    options.check_adapters(args.adapters)
    checkpoint = modes.Checkpoint(
        check_source(args.model, "--model"),
        dtype=args.dtype,
        adapters=args.adapters,
        adapters_sha256=file_sha256(args.adapters) if args.adapters else None,
        weights=args.weights,
        seed=args.seed,
        vocabulary=Database(args.database).vocabulary if args.database else 0,
    )
    checkpoint = replace(checkpoint, sha256=mode.origin(checkpoint)[1])
    folders.replace(args.out, lambda folder: mode.export(checkpoint, folder), _is_export)
    options.print_result(args, args.out, out=args.out)


def _is_export(folder: Path) -> bool:
    """Whether a folder holds graphs that this verb wrote."""
    try:
        return b'"model_sha256"' in (folder / "about.json").read_bytes()
    except OSError:
        return False
