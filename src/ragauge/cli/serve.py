"""Serve an index, or a part of it, over gRPC until told to stop (SIGTERM or SIGINT); SIGHUP opens the index again.

Prints `serving HOST:PORT` on standard output when it answers, and everything else on standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.errors import UserError

if TYPE_CHECKING:
    import grpc

    from ragauge.retrieval.service.server import LoadedIndex
    from ragauge.retrieval.service.settings import ServerSettings

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.retrieval.service.settings import ServerSettings

    add = parser.add_argument
    options.add_database(parser, "the database whose index is served")
    add("--index", required=True, metavar="LABEL", help="an index of the database")
    add(
        "--part",
        type=options.part,
        metavar="I/N",
        help="serve part I of the N that the index was merged into, counted from 0",
    )
    add("--encoder", default="minilm", help="the text encoder of the index: a name, a source or a folder (minilm)")
    add("--engine", choices=("onnx", "torch"), default="onnx", help="what runs the encoder (onnx)")
    add("--verify", action="store_true", help="verify the hash of every file first")
    add(
        "--no-calibrate",
        dest="calibrate",
        action="store_false",
        help="do not measure latency first; queries with a budget are then refused",
    )
    add("--tls-cert", type=Path, metavar="FILE.pem", help="certificate chain of the server")
    add("--tls-key", type=Path, metavar="FILE.pem", help="private key of the certificate")
    add("--tls-client-ca", type=Path, metavar="FILE.pem", help="CA certificates of the clients that may connect")
    add("--cores", metavar="LIST", help="processor cores that the server is pinned to, as in 0 or 0-3")
    add("--token-file", type=Path, metavar="FILE", help="file of the token that every call must carry")
    add("--insecure", action="store_true", help="accept calls without TLS and token from other machines")
    options.add_settings(parser, ServerSettings)
    add("--while-stdin-open", action="store_true", help="also stop when standard input ends")
    add("--address-file", type=Path, metavar="FILE", help="write the address there while the server answers")
    add(
        "--until",
        type=Path,
        metavar="FILE",
        help="stop when all files exist whose paths FILE lists, one a line; exit code 1 if stopped before",
    )


def run(args: argparse.Namespace) -> int:
    from ragauge.config.reading import checked_options
    from ragauge.retrieval.service import credentials, jobs
    from ragauge.retrieval.service.settings import ServerSettings

    settings = checked_options(ServerSettings, options.given(args, ServerSettings))
    credentials.check_reachable(
        settings.host,
        encrypted=args.tls_cert is not None and args.tls_key is not None,
        authenticated=bool(args.token_file or args.tls_client_ca),
        insecure=args.insecure,
    )
    token = credentials.read_token(args.token_file) if args.token_file else None
    _set_cores_and_threads(args.cores, settings.threads)
    files = jobs.read_list(args.until) if args.until else []
    if args.address_file:
        args.address_file.unlink(missing_ok=True)  # of a server that was killed
    if args.until is None or not all(path.exists() for path in files):
        _serve(args, settings, token, files)
    missing = [path for path in files if not path.exists()]
    if missing:
        logger.error("stopped before %d of %d files were there: %s", len(missing), len(files), missing[0])
    return 1 if missing else 0


def _serve(args: argparse.Namespace, settings: ServerSettings, token: str | None, files: list[Path]) -> None:
    """Serve until told to stop, or until all files exist."""
    from ragauge.retrieval.service import credentials, jobs
    from ragauge.retrieval.service.metrics import Metrics
    from ragauge.retrieval.service.process import serve
    from ragauge.retrieval.service.server import Server

    tls = _tls(args)
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


def _tls(args: argparse.Namespace) -> grpc.ServerCredentials | None:
    """The certificate and key; raises UserError if only one of them is given."""
    from ragauge.retrieval.service.credentials import server_credentials

    if (args.tls_cert is None) != (args.tls_key is None):
        raise UserError("--tls-cert and --tls-key: give both or neither")
    if args.tls_client_ca and not args.tls_cert:
        raise UserError("--tls-client-ca: needs --tls-cert and --tls-key")
    return server_credentials(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert else None


def _set_cores_and_threads(cores: str | None, threads: int | None) -> None:
    """Set cores and threads, before any library counts the ones or starts the others.

    OpenMP's number of threads is a property of the calling thread, and searches run in threads of the server: the
    variable alone reaches them all.
    """
    from ragauge.retrieval.service.cores import pin

    if cores:
        pin(cores)
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)


def _load(args: argparse.Namespace, threads: int | None) -> LoadedIndex:
    """Open the index, and measure its latency unless that is switched off."""
    from ragauge.retrieval.retriever import Retriever
    from ragauge.retrieval.service.server import LoadedIndex
    from ragauge.retrieval.service.wire import About

    retriever = Retriever.open(
        args.database.absolute(),
        args.index,
        encoder=args.encoder,
        engine=args.engine,
        threads=threads,
        part=args.part,
        verify=args.verify,
    )
    if args.verify:
        logger.info("verified the hash of every file")
    recipe = retriever.index.recipe
    if args.calibrate and recipe.max_nprobe > 1:
        line = retriever.calibrate([nprobe for nprobe in recipe.MEASURED if nprobe <= recipe.max_nprobe])
        logger.info(
            "a call of one query takes %.2f ms and %.3f ms for each unit of %s, to within %.0f%%",
            1e3 * line.intercept_s,
            1e3 * line.slope_s,
            recipe.NPROBE_KEY,
            100 * line.error,
        )
    return LoadedIndex(retriever, About(**retriever.describe()), retriever.database.tokenizer.batch_decode)
