"""Serve an index, or a part of it, over gRPC until it is stopped (SIGTERM or SIGINT).

Prints `serving HOST:PORT` on standard output when it answers, and everything else on standard
error.
"""

import argparse
from functools import partial
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config.reading import checked_options
from ragauge.pipelines.service.settings import ServerSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_database(parser, "the database whose index is served")
    add("--index", required=True, metavar="LABEL", help="an index of the database")
    add(
        "--part",
        type=options.part,
        metavar="I/N",
        help="serve part I of the merged index's N, counted from 0",
    )
    add(
        "--encoder",
        default="minilm",
        help="the text encoder of the index: a name, a source or a folder (minilm)",
    )
    add("--engine", choices=("onnx", "torch"), default="onnx", help="what runs the encoder (onnx)")
    add(
        "--no-calibrate",
        dest="calibrate",
        action="store_false",
        help="measure no latency first; queries with a budget are then refused",
    )
    add("--tls-cert", type=Path, metavar="FILE.pem", help="certificate chain of the server")
    add("--tls-key", type=Path, metavar="FILE.pem", help="private key of the certificate")
    add(
        "--cores",
        metavar="LIST",
        help="processor cores that the server is pinned to, as in 0 or 0-3",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file of the token that every call must carry",
    )
    add(
        "--insecure",
        action="store_true",
        help="accept calls without TLS and token from other machines",
    )
    options.add_settings(parser, ServerSettings)
    add("--while-stdin-open", action="store_true", help="also stop when standard input ends")
    add(
        "--address-file",
        type=Path,
        metavar="FILE",
        help="write the address there while the server answers",
    )
    add(
        "--until",
        type=Path,
        metavar="FILE",
        help=(
            "stop when all files exist whose paths FILE lists, one a line; exit code 1 if stopped "
            "before"
        ),
    )


def run(args: argparse.Namespace) -> int:
    from ragauge.pipelines.database.embed import EncoderChoice
    from ragauge.pipelines.retrieval.retriever import Retriever
    from ragauge.pipelines.service.credentials import ServerAccess
    from ragauge.pipelines.service.serving import serve_index

    settings = checked_options(ServerSettings, options.given(args, ServerSettings))
    access = ServerAccess(args.tls_cert, args.tls_key, args.token_file, args.insecure)
    open_index = partial(
        Retriever.open,
        args.database.absolute(),
        args.index,
        EncoderChoice(args.encoder, args.engine, settings.threads),
        args.part,
    )
    return serve_index(
        open_index,
        settings,
        access,
        calibrate=args.calibrate,
        cores=args.cores,
        while_stdin_open=args.while_stdin_open,
        address_file=args.address_file,
        until=args.until,
    )
