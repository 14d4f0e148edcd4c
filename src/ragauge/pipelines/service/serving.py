"""Serves an index of a database, from opening it to the end of the server."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from ragauge.io.jsonl import read_lines
from ragauge.pipelines.retrieval.retriever import Retriever
from ragauge.pipelines.service import cores as processor_cores
from ragauge.pipelines.service import process
from ragauge.pipelines.service.credentials import ServerAccess, is_loopback
from ragauge.pipelines.service.server import Server
from ragauge.pipelines.service.settings import ServerSettings

logger = logging.getLogger(__name__)


def serve_index(
    open_index: Callable[[], Retriever],
    settings: ServerSettings,
    access: ServerAccess,
    *,
    calibrate: bool = True,
    cores: str | None = None,
    while_stdin_open: bool = False,
    address_file: Path | None = None,
    until: Path | None = None,
) -> int:
    """Serve an index until it is stopped, or the files listed in `until` exist.

    Args:
        open_index: opens the index; raises UserError as `Retriever.open`.
        settings: of the server.
        access: who may search.
        calibrate: measure the latency that queries with a budget need.
        cores: processor cores that this process is pinned to.
        while_stdin_open: also stop when standard input ends.
        address_file: where the address stands while the server answers.
        until: a file that lists paths, one a line.

    Returns:
        The exit code: 1 if it was stopped before all files existed.

    Raises:
        UserError: it cannot be served so, or other machines could reach it unauthenticated.
    """
    access.check(settings.host)
    token = access.token()
    if cores:  # before any library counts them
        processor_cores.pin(cores)
    # OpenMP's own number is that of the calling thread, and the server's threads search
    if settings.threads:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    lines = read_lines(until) if until else ()
    files = [Path(line.decode().strip()) for _, line in lines if line.strip()]
    if address_file:
        address_file.unlink(missing_ok=True)  # of a server that was killed
    if until is None or not all(path.exists() for path in files):
        searcher = open_index()
        if calibrate:
            _calibrate(searcher)
        server = Server(searcher, settings, tls=access.tls(), token=token)
        if access.insecure and not is_loopback(settings.host):
            logger.warning("warning: %s: other machines can reach it; --insecure", server.address)
        process.serve(
            server,
            settings.grace,
            while_stdin_open=while_stdin_open,
            address_file=address_file,
            files=files,
        )
    missing = [path for path in files if not path.exists()]
    if missing:
        logger.error(
            "stopped before %d of %d files were there: %s", len(missing), len(files), missing[0]
        )
    return 1 if missing else 0


def _calibrate(searcher: Retriever) -> None:
    recipe = searcher.index.recipe
    if recipe.max_nprobe > 1:
        line = searcher.calibrate([n for n in recipe.MEASURED if n <= recipe.max_nprobe])
        logger.info(
            "a call of one query takes %.2f ms and %.3f ms for each unit of %s, to within %.0f%%",
            1e3 * line.intercept_s,
            1e3 * line.slope_s,
            recipe.NPROBE_KEY,
            100 * line.error,
        )
