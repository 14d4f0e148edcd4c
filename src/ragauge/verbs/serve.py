"""Serve an index, or a part of it, over gRPC until told to stop (SIGTERM or SIGINT).

Prints `serving HOST:PORT` on standard output when it answers, and everything else on standard error.
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
    from ragauge.retrieval.service.server import TLS
    from ragauge.retrieval.service.wire import Limits

logger = logging.getLogger(__name__)

LOWEST = {"port": 0, "grace": 0.0, "max_message_bytes": 1024}  # of options; of the others 1
HIGHEST = {
    "port": 65535,
    "threads": 1024,
    "grace": 86400.0,
    "max_queries": 65536,
    "max_concurrent": 4096,
    "max_message_bytes": 1 << 30,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ragauge serve`."""
    add = parser.add_argument
    add("--index", type=Path, required=True, metavar="FOLDER", help="<database>/indexes/<label>")
    add("--part", type=options.part, metavar="I/N", help="of the N that the index was merged into, counted from 0")
    add("--encoder", default="minilm", help="the text encoder of the index: a name, a source or a folder (minilm)")
    add("--engine", choices=("onnx", "torch"), default="onnx", help="what runs the encoder (onnx)")
    add("--verify", action="store_true", help="hash every file first")
    add(
        "--no-calibrate",
        dest="calibrate",
        action="store_false",
        help="do not measure searches first; queries with a budget are then refused",
    )
    add("--port", type=int, default=50051, help="0: the system chooses (50051)")
    add("--host", default="127.0.0.1", help="address to listen on; default: this machine alone can reach it")
    add("--tls-cert", type=Path, metavar="FILE.pem", help="certificate chain of the server")
    add("--tls-key", type=Path, metavar="FILE.pem", help="its private key")
    add("--threads", type=int, metavar="N", help="of one search; default: all cores that the server may use")
    add("--cores", metavar="LIST", help="processor cores that the server is kept to, as in 0 or 0-3")
    add("--grace", type=float, default=30.0, metavar="SECONDS", help="for what runs when the server is stopped (30)")
    add("--max-queries", type=int, default=256, metavar="N", help="in one request (256)")
    add("--max-concurrent", type=int, default=64, metavar="N", help="requests under way (64)")
    add("--max-message-bytes", type=int, default=1 << 20, metavar="N", help="of a request (1 MiB)")
    add("--while-stdin-open", action="store_true", help="stop as well when standard input ends")


def run(args: argparse.Namespace) -> None:
    """Serve until told to stop."""
    _keep_to_cores(args)
    from ragauge.retrieval.service import server, wire
    from ragauge.retrieval.service.process import serve

    limits, tls = _checked(args)
    retriever = _retriever(args)
    served = server.Server(
        retriever,
        wire.About(**retriever.describe()),
        host=args.host,
        port=args.port,
        tls=tls,
        limits=limits,
        detokenize=retriever.database.tokenizer.batch_decode,
    )
    if tls is None and not server.is_loopback(args.host):
        logger.warning("warning: %s is not this machine alone, and without TLS anybody reads along", served.address)
    serve(served, args.grace, args.while_stdin_open)


def _checked(args: argparse.Namespace) -> tuple[Limits, TLS | None]:
    """The limits and the certificate; raises UserError on an option that is out of bounds."""
    from ragauge.retrieval.service.server import TLS
    from ragauge.retrieval.service.wire import Limits

    for name, high in HIGHEST.items():
        value = getattr(args, name)
        if value is not None and not LOWEST.get(name, 1) <= value <= high:
            raise UserError(f"--{name.replace('_', '-')} {value}: must be from {LOWEST.get(name, 1)} to {high}")
    if (args.tls_cert is None) != (args.tls_key is None):
        raise UserError("--tls-cert and --tls-key: give both or neither")
    limits = Limits(message_bytes=args.max_message_bytes, queries=args.max_queries, concurrent=args.max_concurrent)
    return limits, TLS(args.tls_cert, args.tls_key) if args.tls_cert else None


def _keep_to_cores(args: argparse.Namespace) -> None:
    """Cores and threads, before any library counts the ones or starts the others.

    OpenMP's number of threads is a property of the calling thread, and searches run in threads of the server: the
    variable alone reaches them all.
    """
    from ragauge.retrieval.service.cores import pin

    if args.cores:
        pin(args.cores)
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)


def _retriever(args: argparse.Namespace) -> Retriever:
    """The retriever of --index, its latency measured unless that is not wanted."""
    from ragauge.retrieval.retriever import Retriever

    if args.index.absolute().parent.name != "indexes":
        raise UserError(f"--index {args.index}: must be the folder of an index, <database>/indexes/<label>")
    retriever = Retriever.open(
        args.index.absolute().parent.parent,
        args.index.absolute().name,
        encoder=args.encoder,
        engine=args.engine,
        threads=args.threads,
        part=args.part,
        verify=args.verify,
    )
    if args.calibrate and retriever.index.recipe.most_effort > 1:
        _calibrate(retriever)
    return retriever


def _calibrate(retriever: Retriever) -> None:
    index = retriever.index
    line = retriever.calibrate([effort for effort in index.recipe.MEASURED if effort <= index.recipe.most_effort])
    logger.info(
        "a call of one query takes %.2f ms and %.3f ms for each unit of %s, to within %.0f%%",
        1e3 * line.intercept_s,
        1e3 * line.slope_s,
        index.recipe.EFFORT,
        100 * line.error,
    )
