"""Serve an index, or a part of it, over gRPC until it is stopped (SIGTERM or SIGINT); SIGHUP opens
the index again.

Prints `serving HOST:PORT` on standard output when it answers, and everything else on standard
error.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.config.reading import checked_options
from ragauge.errors import UserError
from ragauge.pipelines.service.settings import ServerSettings

if TYPE_CHECKING:
    from ragauge.pipelines.service.server import LoadedIndex

logger = logging.getLogger(__name__)


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
    calibrate = "measure no latency first; queries with a budget are then refused"
    add("--no-calibrate", dest="calibrate", action="store_false", help=calibrate)
    add("--tls-cert", type=Path, metavar="FILE.pem", help="certificate chain of the server")
    add("--tls-key", type=Path, metavar="FILE.pem", help="private key of the certificate")
    add(
        "--tls-client-ca",
        type=Path,
        metavar="FILE.pem",
        help="CA certificates of the clients that may connect",
    )
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
    until = "stop when all files exist whose paths FILE lists, one a line; exit code 1 if stopped before"
    add("--until", type=Path, metavar="FILE", help=until)


def run(args: argparse.Namespace) -> int:
    from ragauge.pipelines.service import credentials, jobs
    from ragauge.pipelines.service.cores import pin

    settings = checked_options(ServerSettings, options.given(args, ServerSettings))
    credentials.check_reachable(
        settings.host,
        encrypted=args.tls_cert is not None and args.tls_key is not None,
        authenticated=bool(args.token_file or args.tls_client_ca),
        insecure=args.insecure,
    )
    token = credentials.read_token(args.token_file) if args.token_file else None
    if args.cores:  # before any library counts them
        pin(args.cores)
    # OpenMP's own number is that of the calling thread, and the server's threads search
    if settings.threads:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    files = jobs.read_list(args.until) if args.until else []
    if args.address_file:
        args.address_file.unlink(missing_ok=True)  # of a server that was killed
    if args.until is None or not all(path.exists() for path in files):
        _serve(args, settings, token, files)
    missing = [path for path in files if not path.exists()]
    if missing:
        logger.error(
            "stopped before %d of %d files were there: %s", len(missing), len(files), missing[0]
        )
    return 1 if missing else 0


def _serve(
    args: argparse.Namespace, settings: ServerSettings, token: str | None, files: list[Path]
) -> None:
    from ragauge.pipelines.service import credentials, jobs
    from ragauge.pipelines.service.metrics import Metrics
    from ragauge.pipelines.service.process import serve
    from ragauge.pipelines.service.server import Server

    files_of_tls = (args.tls_cert, args.tls_key, args.tls_client_ca)
    if any(files_of_tls) and not (args.tls_cert and args.tls_key):
        raise UserError(
            "--tls-cert and --tls-key: give both or neither; --tls-client-ca needs them"
        )
    tls = credentials.server_credentials(*files_of_tls) if args.tls_cert else None
    server = Server(_load(args, settings.threads), settings, tls=tls, token=token)
    if settings.metrics_port is not None:
        server.metrics = Metrics(server.queue)
        address = server.metrics.serve(settings.metrics_host, settings.metrics_port)
        logger.info("metrics at http://%s/metrics", address)
    if args.insecure and not credentials.is_loopback(settings.host):
        logger.warning("warning: %s: other machines can reach it; --insecure", server.address)

    def reload() -> None:
        server.loaded = _load(args, settings.threads)
        logger.info("reloaded: index %s", server.loaded.about.index)

    def announce() -> None:
        if args.address_file:
            jobs.write_address(args.address_file, server.address)

    try:
        serve(
            server,
            settings.grace,
            while_stdin_open=args.while_stdin_open,
            reload=reload,
            on_ready=announce,
            is_finished=lambda: bool(files) and jobs.are_finished(files),
        )
    finally:
        if args.address_file:
            args.address_file.unlink(missing_ok=True)


def _load(args: argparse.Namespace, threads: int | None) -> LoadedIndex:
    """Open the index, and measure its latency unless that is switched off."""
    from ragauge.pipelines.retrieval.retriever import Retriever
    from ragauge.pipelines.service.server import LoadedIndex

    place = (args.database.absolute(), args.index)
    keys = ("encoder", "engine", "part")
    retriever = Retriever.open(
        *place, threads=threads, **{name: getattr(args, name) for name in keys}
    )
    recipe = retriever.index.recipe
    if args.calibrate and recipe.max_nprobe > 1:
        line = retriever.calibrate(
            [nprobe for nprobe in recipe.MEASURED if nprobe <= recipe.max_nprobe]
        )
        text = f"a call of one query takes {1e3 * line.intercept_s:.2f} ms and {1e3 * line.slope_s:.3f} ms"
        logger.info(
            "%s for each unit of %s, to within %.0f%%", text, recipe.NPROBE_KEY, 100 * line.error
        )
    return LoadedIndex(retriever, retriever.describe(), retriever.database.tokenizer.batch_decode)
