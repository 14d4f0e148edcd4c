"""Export a decoder that reads neighbours, or RETRO, to ONNX for `ragauge pipeline --onnx`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--form", default="joint", choices=("joint", "retro"), help="retro: export RETRO in place of --model")
    add("--model", default="smollm2-135m-instruct", help="the decoder: name, source or folder; exported in float32")
    add(
        "--adapters",
        type=Path,
        metavar="FILE.safetensors",
        help="what `ragauge retrofit` trained: export it as well",
    )
    add("--weights", type=Path, metavar="FILE", help="form retro: its weights; default: random, to time it")
    add("--seed", type=int, default=0, help="seed of random weights (0)")
    add("--database", type=Path, metavar="FOLDER", help="form retro: the chunk database, for its tokenizer")
    add("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    _check(args)
    print(_retro(args) if args.form == "retro" else _decoder(args))


def _check(args: argparse.Namespace) -> None:
    if args.form == "retro" and not args.database:
        raise UserError("--form retro: requires --database, whose tokenizer sets the vocabulary")
    of_other = {"--adapters": args.adapters} if args.form == "retro" else {"--weights": args.weights}
    for option in (option for option, value in of_other.items() if value):
        raise UserError(f"{option}: not valid with form {args.form!r}")
    if args.adapters and not args.adapters.is_file():
        raise UserError(f"--adapters: no such file: {args.adapters}")


def _decoder(args: argparse.Namespace) -> Path:
    from ragauge import assets
    from ragauge.engines import load_lm
    from ragauge.experiment.checks import check_source
    from ragauge.generation.onnx.decoder import export_model
    from ragauge.generation.retrofit.adapters import Adapters
    from ragauge.io.folders import file_sha256

    check_source(args.model, "--model")
    lm = load_lm(args.model)
    sha256 = assets.describe(args.model)["sha256"]
    adapted = Adapters.load(args.adapters, lm, sha256).merged(lm) if args.adapters else None
    about = {
        "model": args.model,
        "model_sha256": sha256,
        "adapters_sha256": file_sha256(args.adapters) if args.adapters else None,
    }
    return export_model(lm, args.out, about, adapted)


def _retro(args: argparse.Namespace) -> Path:
    from ragauge.generation.onnx.retro import export_retro
    from ragauge.generation.retro_model.weights import make_retro, origin
    from ragauge.retrieval.database import Database

    vocabulary = Database(args.database).vocabulary
    about = {"model": "retro", "model_sha256": origin(args.weights, args.seed), "vocabulary": vocabulary}
    return export_retro(make_retro(args.weights, args.seed, vocabulary), args.out, about)
