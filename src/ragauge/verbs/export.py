"""Export a decoder that reads neighbours, or RETRO, to ONNX for `ragauge pipeline --onnx`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge import registry
from ragauge.cost.hardware import ONNX_DTYPES
from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.generation.readers import Checkpoint, NeighbourReader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.generation import readers

    add, own = parser.add_argument, ", ".join(readers.having("weights"))
    add("--form", default="joint", choices=registry.names("form"), help="form of reading neighbours (joint)")
    options.add_reader(parser)
    add(
        "--dtype",
        default="float32",
        choices=ONNX_DTYPES["cuda"],
        help="data type of the export; float16 is for GPUs only (float32)",
    )
    add("--seed", type=int, default=0, help="seed of random weights (0)")
    options.add_database(parser, f"form {own}: the chunk database, for its tokenizer", required=False)
    add("--out", type=Path, required=True, metavar="FOLDER")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.generation.readers import reader_of
    from ragauge.io.folders import check_replaceable, replace

    check_replaceable(args.out, _is_export)
    form = reader_of(args.form)
    _check(args, form)
    checkpoint = _checkpoint(args, form)

    def fill(folder: Path) -> None:
        form.export(checkpoint, folder)

    replace(args.out, fill, _is_export)
    options.tell(args, args.out, out=args.out)


def _is_export(folder: Path) -> bool:
    """Whether a folder holds graphs that this verb wrote."""
    try:
        return b'"model_sha256"' in (folder / "about.json").read_bytes()
    except OSError:
        return False


def _check(args: argparse.Namespace, form: NeighbourReader) -> None:
    if "onnx" not in form.engines:
        raise UserError(f"--form {args.form}: cannot be exported to ONNX")
    if form.own_model and not args.database:
        raise UserError(f"--form {args.form}: requires --database, whose tokenizer sets the vocabulary")
    of_other = {"--adapters": args.adapters} if form.own_model else {"--weights": args.weights}
    for option in (option for option, value in of_other.items() if value):
        raise UserError(f"{option}: not valid with form {args.form!r}")
    options.check_adapters(args.adapters)


def _checkpoint(args: argparse.Namespace, form: NeighbourReader) -> Checkpoint:
    """What is exported."""
    from dataclasses import replace

    from ragauge.experiment.checks import check_source
    from ragauge.generation.readers import Checkpoint
    from ragauge.io.files import file_sha256
    from ragauge.retrieval.database import Database

    args.model = check_source(args.model, "--model")
    vocabulary = Database(args.database).vocabulary if args.database else 0
    made = Checkpoint(
        args.model,
        dtype=args.dtype,
        adapters=args.adapters,
        weights=args.weights,
        seed=args.seed,
        vocabulary=vocabulary,
    )
    adapters_sha256 = file_sha256(args.adapters) if args.adapters else None
    return replace(made, sha256=form.origin(made)[1], adapters_sha256=adapters_sha256)
