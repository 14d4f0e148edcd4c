"""Serve an index, or a part of it, over gRPC until told to stop (SIGTERM or SIGINT); SIGHUP opens the index again.

Prints `serving HOST:PORT`, or `serving unix:/PATH`, on standard output when it answers, and everything
else on standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.retrieval.retriever import Retriever
    from ragauge.retrieval.service.calls import LoadedIndex
    from ragauge.retrieval.service.finished import Observer
    from ragauge.retrieval.service.jobs import Clients
    from ragauge.retrieval.service.server import TLS, Server
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
    add("--tls-client-ca", type=Path, metavar="FILE.pem", help="CA certificates of the clients that are let in")
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
        help="stop when all files are there whose paths FILE lists, one a line; exit code 1 if stopped before",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop; SIGHUP opens the index again, and the log of requests by its name."""
    from ragauge.experiment.reading import checked_options
    from ragauge.retrieval.service.settings import ServerSettings

    settings = checked_options(ServerSettings, options.given(args, ServerSettings))
    token = _checked_access(args, settings.host)
    _keep_to_cores(args.cores, settings.threads)
    from ragauge.retrieval.service.jobs import Clients

    clients = Clients(args.until) if args.until else None
    if args.address_file:
        args.address_file.unlink(missing_ok=True)  # of a server that was killed
    if clients is None or clients.left:
        _serve(args, settings, token, clients)
    if clients and (left := clients.left):
        logger.error("stopped before %d of %d files were there: %s", len(left), len(clients.files), left[0])
        return 1
    return 0


def _serve(args: argparse.Namespace, settings: ServerSettings, token: str | None, clients: Clients | None) -> None:
    """Serve, and tell where, until that is over."""
    from ragauge.retrieval.service import access
    from ragauge.retrieval.service.finished import Metrics, RequestLog
    from ragauge.retrieval.service.jobs import remove_address, write_address
    from ragauge.retrieval.service.process import serve

    tls = _tls(args)
    log = RequestLog(settings.request_log) if settings.request_log else None
    observers: list[Observer] = [*([log] if log else []), *([clients.asked] if clients else [])]
    served = _server(args, settings, tls, token, observers)
    if settings.metrics_port is not None:
        metrics = Metrics(served.gauges)
        observers.append(metrics)
        logger.info("metrics at http://%s/metrics", metrics.serve(settings.metrics_host, settings.metrics_port))
    if args.insecure and not settings.socket and not access.is_loopback(settings.host):
        logger.warning("warning: %s: other machines can reach it; --insecure", served.address)

    def reload() -> None:
        if log:
            log.reopen()
        what = _served(args, settings.threads)
        served.exchange(what)
        logger.info("reloaded: index %s", what.about.index)

    def tell() -> None:
        if args.address_file:
            write_address(args.address_file, served.address)

    try:
        serve(served, settings.grace, args.while_stdin_open, reload, told=tell, over=clients.over if clients else None)
    finally:
        if args.address_file:
            remove_address(args.address_file, served.address)


def _server(
    args: argparse.Namespace, settings: ServerSettings, tls: TLS | None, token: str | None, observers: list[Observer]
) -> Server:
    """A server of the index by the settings; the log says how much memory requests can take."""
    from ragauge.retrieval.service import quotas, server, wire

    limits = wire.RequestLimits(
        message_bytes=settings.max_message_bytes,
        queries=settings.max_queries,
        concurrent=settings.max_concurrent,
        work=settings.max_work,
    )
    what = _served(args, settings.threads)
    most = server.most_bytes(limits)
    logger.info("at most %d MiB of requests and %d MiB of replies in memory", *(size >> 20 for size in most.values()))
    return server.Server(
        what.searcher,
        what.about,
        host=settings.host,
        port=settings.port,
        tls=tls,
        limits=limits,
        workers=settings.workers,
        window_s=1e-3 * settings.window_ms,
        long_work=settings.long_work,
        rates=quotas.Rates(settings.client_requests, settings.client_queries, settings.client_lists),
        detokenize=what.detokenize,
        token=token,
        socket=settings.socket,
        socket_mode=int(settings.socket_mode, 8),
        hang_s=settings.hang,
        observers=observers,
    )


def _served(args: argparse.Namespace, threads: int | None) -> LoadedIndex:
    """What stands in the index's folder now."""
    from ragauge.retrieval.service.calls import LoadedIndex
    from ragauge.retrieval.service.wire import About

    retriever = _retriever(args, threads)
    return LoadedIndex(retriever, About(**retriever.describe()), retriever.database.tokenizer.batch_decode)


def _checked_access(args: argparse.Namespace, host: str) -> str | None:
    """The token; raises UserError, before anything is opened, where anyone could ask and that was not wanted."""
    from ragauge.retrieval.service.access import check_reachable, read_token

    encrypted = args.tls_cert is not None and args.tls_key is not None
    check_reachable(
        host, encrypted=encrypted, known=bool(args.token_file or args.tls_client_ca), insecure=args.insecure
    )
    return read_token(args.token_file) if args.token_file else None


def _tls(args: argparse.Namespace) -> TLS | None:
    """The certificate and key; raises UserError if only one of them is given."""
    from ragauge.retrieval.service.server import TLS

    if (args.tls_cert is None) != (args.tls_key is None):
        raise UserError("--tls-cert and --tls-key: give both or neither")
    if args.tls_client_ca and not args.tls_cert:
        raise UserError("--tls-client-ca: needs --tls-cert and --tls-key")
    return TLS(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert else None


def _keep_to_cores(cores: str | None, threads: int | None) -> None:
    """Cores and threads, before any library counts the ones or starts the others.

    OpenMP's number of threads is a property of the calling thread, and searches run in threads of the server: the
    variable alone reaches them all.
    """
    from ragauge.retrieval.service.cores import pin

    if cores:
        pin(cores)
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)


def _retriever(args: argparse.Namespace, threads: int | None) -> Retriever:
    """The retriever of --index; its latency is measured unless that is switched off."""
    from ragauge.io import folders
    from ragauge.retrieval.retriever import Retriever

    with folders.counting() as read:
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
        logger.info("verified: %s", read)
    if args.calibrate and retriever.index.recipe.max_nprobe > 1:
        _calibrate(retriever)
    return retriever


def _calibrate(retriever: Retriever) -> None:
    index = retriever.index
    line = retriever.calibrate([nprobe for nprobe in index.recipe.MEASURED if nprobe <= index.recipe.max_nprobe])
    logger.info(
        "a call of one query takes %.2f ms and %.3f ms for each unit of %s, to within %.0f%%",
        1e3 * line.intercept_s,
        1e3 * line.slope_s,
        index.recipe.NPROBE_KEY,
        100 * line.error,
    )
