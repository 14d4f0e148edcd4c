"""Export a Llama-family decoder to ONNX, with its trained adapters, for `ragauge pipeline --onnx`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2-135m-instruct", help="name, source or folder; exported in float32")
    parser.add_argument(
        "--adapters", type=Path, metavar="FILE.safetensors", help="trained by `ragauge retrofit`: export them as well"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    from ragauge import assets
    from ragauge.assets.store import file_sha256
    from ragauge.config import check_source
    from ragauge.lm import load_lm
    from ragauge.retro.adapters import Adapters
    from ragauge.retro.onnx import export_model

    check_source(args.model, "--model")
    if args.adapters and not args.adapters.is_file():
        raise UserError(f"--adapters: no such file: {args.adapters}")
    lm = load_lm(args.model)
    sha256 = assets.describe(args.model)["sha256"]
    adapted = Adapters.load(args.adapters, lm, sha256).merged(lm) if args.adapters else None
    about = {
        "model": args.model,
        "model_sha256": sha256,
        "adapters_sha256": file_sha256(args.adapters) if args.adapters else None,
    }
    print(export_model(lm, args.out, about, adapted))
