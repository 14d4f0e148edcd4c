"""Export a decoder that reads neighbours to ONNX, for `ragauge pipeline --onnx`: a Llama-family one, or RETRO."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--form", default="joint", choices=("joint", "retro"), help="retro: RETRO and its encoder, not --model")
    add("--model", default="smollm2-135m-instruct", help="name, source or folder; exported in float32")
    add("--adapters", type=Path, metavar="FILE.safetensors", help="trained by `ragauge retrofit`: export them as well")
    add("--weights", type=Path, metavar="FILE", help="of the form retro: its tensors; default: random, for latency")
    add("--seed", type=int, default=0, help="of random weights")
    add("--database", type=Path, metavar="FOLDER", help="of the form retro: the chunk database, for its tokenizer")
    add("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    _check(args)
    print(_retro(args) if args.form == "retro" else _decoder(args))


def _check(args: argparse.Namespace) -> None:
    if args.form == "retro" and not args.database:
        raise UserError("--form retro: needs --database, whose tokenizer's vocabulary it takes")
    of_other = {"--adapters": args.adapters} if args.form == "retro" else {"--weights": args.weights}
    for option in (option for option, value in of_other.items() if value):
        raise UserError(f"{option}: is not of the form {args.form}")
    if args.adapters and not args.adapters.is_file():
        raise UserError(f"--adapters: no such file: {args.adapters}")


def _decoder(args: argparse.Namespace) -> Path:
    from ragauge import assets
    from ragauge.engines import load_lm
    from ragauge.experiment.checks import check_source
    from ragauge.generation.adapters import Adapters
    from ragauge.generation.onnx import export_model
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
    from ragauge.generation.architecture import make_retro, origin
    from ragauge.generation.onnx_retro import export_retro
    from ragauge.retrieval.database import Database

    vocabulary = Database(args.database).vocabulary
    about = {"model": "retro", "model_sha256": origin(args.weights, args.seed), "vocabulary": vocabulary}
    return export_retro(make_retro(args.weights, args.seed, vocabulary), args.out, about)
