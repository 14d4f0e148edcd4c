"""A retrieval server that is a job of its own: how its clients find it, and when it ends
(docs/retrieval.md).
"""

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.files import write_file

# that a mark of failure stands before the job is given up, since it may be tried again
FAILED_S = 120.0
WAIT_S = 3600.0  # for a server: its job may wait for a node
POLL_S = 0.5
READY_S = 5.0  # for an answer from an address


def write_address(path: Path, address: str) -> None:
    """Write a server's address; one that listens on all addresses is reached by the name of its
    machine.
    """
    host, _, port = address.rpartition(":")
    write_file(
        path, f"{socket.gethostname() if host in ('0.0.0.0', '[::]') else host}:{port}\n".encode()
    )


def wait_for_server(path: Path, *, limit_s: float = WAIT_S, **access: Any) -> str:
    """Wait for a server at the address in a file; return it.

    Raises:
        UserError: it failed, or none in `limit_s`.
    """
    from ragauge.pipelines.service.client import Client, LostError

    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if _has_failed(path):
            raise UserError(f"{path}: the job of this retrieval server failed; its log says why")
        # none yet, or of a server that was killed
        with suppress(FileNotFoundError, LostError):
            address = path.read_text(encoding="utf-8").strip()
            with Client(address, **access) as client:
                client.wait_until_ready(READY_S)
            return address
        time.sleep(POLL_S)
    raise UserError(f"{path}: no retrieval server answered there within {limit_s:g} s")


def are_finished(files: Iterable[Path]) -> bool:
    """Return whether every file exists, or its job failed so long ago that nobody tries it again."""
    return all(path.exists() or _has_failed(path) for path in files)


def _has_failed(path: Path) -> bool:
    with suppress(FileNotFoundError):  # the next attempt removes the mark
        return time.time() - path.with_name(path.name + ".failed").stat().st_mtime > FAILED_S
    return False
