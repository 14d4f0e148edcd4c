"""A retrieval server that is a job of its own: where its clients find it, and when it ends.

It writes its address into a file, for which its clients wait, and serves until the files that they make are there. What
gives up leaves a file of the same name with `.failed` at its end: the server beside its address, a client beside
what it was to make. So neither waits for the other for ever.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.files import write_file
from ragauge.retrieval.service.finished import Finished

FAILED = ".failed"
FAILED_S = 120.0  # for a server that failed to be tried again
WAIT_S = 3600.0  # for a server: its job may wait for a node
QUIET_S = 1800.0  # without a request after which a server ends, once a client has failed
LOOK_S = 0.5
READY_S = 5.0  # for an answer from an address
ANY_HOST = ("0.0.0.0", "[::]")


def mark(path: Path) -> Path:
    """The file that says that another one will not be made."""
    return path.with_name(path.name + FAILED)


def write_address(path: Path, address: str) -> None:
    """Write where a server can be asked: one that listens on all addresses of its machine by the machine's name."""
    write_file(path, f"{_reached(address)}\n".encode())


def remove_address(path: Path, address: str) -> None:
    """Take it away again, unless another server's has taken its place."""
    if _read(path) == _reached(address):
        path.unlink(missing_ok=True)


def _reached(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname() if host in ANY_HOST else host}:{port}"


def awaited(
    path: Path, *, limit_s: float = WAIT_S, failed_s: float = FAILED_S, look_s: float = LOOK_S, **access: Any
) -> str:
    """The address in a file, as soon as the server there answers.

    Args:
        failed_s: how long the server's job may stand as failed, as it is tried again.
        access: what the server requires of a client, as `Client` takes it.

    Raises:
        UserError: the server's job failed, or none answered in time.
    """
    began = well = time.monotonic()
    while (now := time.monotonic()) < began + limit_s:
        well = well if mark(path).exists() else now
        if now - well > failed_s:
            raise UserError(f"{path}: the job of this retrieval server failed; its log says why")
        address = _read(path)
        if address and _answers(address, access):
            return address
        time.sleep(look_s)
    raise UserError(f"{path}: no retrieval server answered there within {limit_s:g} s")


def _read(path: Path) -> str:
    """The address; nothing while there is none."""
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


class Clients:
    """Who is served: the files that they make, and when they last asked."""

    def __init__(self, listed: Path, *, quiet_s: float = QUIET_S, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            listed: a file with the path of each file that is made, one a line.
            quiet_s: how long a server waits for a request once a client has failed.

        Raises:
            UserError: the list cannot be read.
        """
        try:
            lines = listed.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{listed}: cannot be read: {error.strerror}") from error
        self.files = [Path(line) for line in lines if line]
        self._quiet_s, self._clock = quiet_s, clock
        self._asked = clock()
        self._had_failed = self._forget()

    def _forget(self) -> bool:
        """Remove the marks of clients that failed before this server began, and may be tried again; whether any had."""
        former = [found for path in self.files if (found := mark(path)).exists()]
        for path in former:
            path.unlink(missing_ok=True)
        return bool(former)

    def asked(self, _: Finished) -> None:
        """Observes a request."""
        self._asked = self._clock()

    @property
    def left(self) -> list[Path]:
        """What is not made yet."""
        return [path for path in self.files if not path.exists()]

    def over(self) -> bool:
        """Whether nobody is left to serve: all is made or given up, or one has failed and for long no other asks."""
        left = self.left
        given_up = [path for path in left if mark(path).exists()]
        quiet = self._clock() - self._asked > self._quiet_s
        return len(given_up) == len(left) or (quiet and (self._had_failed or bool(given_up)))
