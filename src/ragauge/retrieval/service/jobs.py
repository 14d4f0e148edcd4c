"""A retrieval server that is a job of its own: how its clients find it, and when it ends.

The server writes its address into a file, for which its clients wait, and serves until the files that they make exist.
A job that fails leaves a file of the same name with `.failed` at its end: the server beside its address, a client
beside the file that it was to make. So neither waits for the other for ever.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.files import write_file

FAILED_S = 120.0  # that a mark of failure stands before the job is given up, since it may be tried again
WAIT_S = 3600.0  # for a server: its job may wait for a node
POLL_S = 0.5
READY_S = 5.0  # for an answer from an address
ANY_HOST = ("0.0.0.0", "[::]")


def failure_mark(path: Path) -> Path:
    """The file that says that the job that makes `path` failed."""
    return path.with_name(path.name + ".failed")


def write_address(path: Path, address: str) -> None:
    """Write a server's address; one that listens on all addresses is reached by the name of its machine."""
    write_file(path, f"{_reachable(address)}\n".encode())


def remove_address(path: Path, address: str) -> None:
    """Remove a server's address, unless another server has written its own since."""
    if _read(path) == _reachable(address):
        path.unlink(missing_ok=True)


def wait_for_server(
    path: Path, *, limit_s: float = WAIT_S, failed_s: float = FAILED_S, poll_s: float = POLL_S, **access: Any
) -> str:
    """Wait until a server answers at the address in a file, and return the address.

    Args:
        failed_s: how long the mark of a failed server may stand.
        access: the credentials of `Client`.

    Raises:
        UserError: the server's job failed, or none answered in time.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if _has_failed(path, failed_s):
            raise UserError(f"{path}: the job of this retrieval server failed; its log says why")
        address = _read(path)
        if address and _answers(address, access):
            return address
        time.sleep(poll_s)
    raise UserError(f"{path}: no retrieval server answered there within {limit_s:g} s")


def read_list(path: Path) -> list[Path]:
    """The files that the clients of a server make, one a line. Raises UserError if the list cannot be read."""
    try:
        return [Path(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def are_finished(files: list[Path], failed_s: float = FAILED_S) -> bool:
    """Whether every file exists, or its job failed so long ago that nobody tries it again."""
    return all(path.exists() or _has_failed(path, failed_s) for path in files)


def _has_failed(path: Path, failed_s: float) -> bool:
    try:
        return time.time() - failure_mark(path).stat().st_mtime > failed_s
    except FileNotFoundError:
        return False


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname() if host in ANY_HOST else host}:{port}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def _answers(address: str, access: dict[str, Any]) -> bool:
    from ragauge.retrieval.service.client import Client, RetrievalError

    with Client(address, **access) as client:
        try:
            client.wait_until_ready(READY_S)
        except RetrievalError:
            return False  # of a server that was killed, and whose successor has not come up
    return True
