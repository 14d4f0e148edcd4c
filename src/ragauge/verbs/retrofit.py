"""Train a frozen decoder to use retrieved neighbours (RETRO-fit); goes on where it was cut off."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from ragauge.errors import UserError
from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="smollm2-135m-instruct", help="the decoder: name, source or folder")
    add("--dtype", default="float32", choices=("float32", "bfloat16"))
    add("--device", default="cpu", choices=options.DEVICES)
    add("--database", type=Path, required=True, metavar="FOLDER", help="the chunk database that is trained on")
    add("--index", type=Path, metavar="FOLDER", help="start a server of this index for the length of the training")
    add("--server", metavar="HOST:PORT", help="ask a server that runs already")
    add("--form", default="joint", choices=("joint", "cross_attention"), help="how neighbours are read")
    add("--minutes", type=float, default=8.0, help="of wall-clock time, all in all")
    add("--rank", type=int, default=8, help="joint: of the low-rank terms")
    add("--cross-layers", type=int, default=3, help="cross_attention: layers of the decoder that get it")
    add("--encoder-layers", type=int, default=2, help="cross_attention: the decoder's first layers, copied")
    add("--rate", type=float, default=2e-3, help="learning rate")
    add("--batch", type=int, default=4, help="texts a step")
    add("--held-out", type=int, default=16, help="texts of the curve")
    add("--seed", type=int, default=0)
    add("--threads", type=options.count, help="default: torch's own choice")
    add("--out", type=Path, required=True, metavar="FOLDER", help="adapters.safetensors, curve.jsonl, state.pt")


def run(args: argparse.Namespace) -> None:
    from ragauge import assets
    from ragauge.engines import load_lm
    from ragauge.experiment.checks import check_source
    from ragauge.generation.evaluation import Chunks
    from ragauge.retrieval.database import Database
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.process import running
    from ragauge.training.retrofit.retrofit import Material, Recipe, Trainer

    check_source(args.model, "--model")
    if bool(args.index) == bool(args.server):
        raise UserError("training asks a retriever: give --index or --server, one of the two")
    recipe = Recipe(
        args.minutes,
        args.rank,
        args.rate,
        batch=args.batch,
        held_out=args.held_out,
        seed=args.seed,
        form=args.form,
        cross_layers=args.cross_layers,
        encoder_layers=args.encoder_layers,
    )
    database = Database(args.database)
    lm = load_lm(args.model, dtype=args.dtype, device=args.device, threads=args.threads)
    database.check_tokenizer(lm.tokenizer, args.model)
    sha256 = assets.describe(args.model)["sha256"]
    about = {"model": args.model, "model_sha256": sha256, "database_sha256": database.sha256}
    with ExitStack() as opened:
        address = args.server or opened.enter_context(running(args.index)).address
        client = opened.enter_context(Client(address))
        print(Trainer(lm, Material(Chunks(database), client, recipe), args.out, about).run())
