"""`ragauge piperag retrofit`: train a frozen decoder to use retrieved neighbours (RETRO-fit)."""

import argparse
from contextlib import ExitStack
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.errors import UserError
from ragauge.generation import modes
from ragauge.training.settings import RetrofitSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_decoder(parser)
    add("--dtype", default="float32", choices=("float32", "bfloat16"))
    options.add_device(parser)
    options.add_database(parser, "the chunk database to train on")
    add("--index", metavar="LABEL", help="start a server of this index of the database for the training")
    options.add_server(parser, "use a running server")
    options.add_access(parser)
    options.add_settings(parser, RetrofitSettings, mode=list(modes.trainable()))
    options.add_threads(parser, "default: torch's own choice")
    add("--out", type=Path, required=True, metavar="FOLDER", help="adapters.safetensors, curve.jsonl, checkpoints")


def run(args: argparse.Namespace) -> None:
    """Train until the minutes are spent."""
    from ragauge import assets
    from ragauge.config.checks import check_source
    from ragauge.config.reading import checked_options
    from ragauge.generation.modes import Checkpoint
    from ragauge.retrieval.database import Database
    from ragauge.retrieval.service.client import Client
    from ragauge.retrieval.service.process import running
    from ragauge.training.fit import RetroFit, RetrofitMaterial

    settings = checked_options(RetrofitSettings, options.given(args, RetrofitSettings))
    args.model = check_source(args.model, "--model")
    if bool(args.index) == bool(args.server):
        raise UserError("training requires retrieval: give --index or --server")
    database = Database(args.database)
    lm = Checkpoint(args.model, dtype=args.dtype, device=args.device, threads=args.threads).decoder()
    database.check_tokenizer(lm.tokenizer, args.model)
    sha256 = assets.describe(args.model)["sha256"]
    about = {"model": args.model, "model_sha256": sha256, "database_sha256": database.sha256}
    with ExitStack() as opened:
        address = args.server or opened.enter_context(running(args.database / "indexes" / args.index)).address
        client = opened.enter_context(Client(address, **options.access(args)))
        adapters = RetroFit(lm, RetrofitMaterial(database, client, settings), args.out, about).fit()
    options.print_result(args, adapters, out=adapters)
