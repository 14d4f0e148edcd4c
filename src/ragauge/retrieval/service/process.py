"""A retrieval server as a process: running it until it is told to stop, and starting and stopping one from a job."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.retrieval.service.client import RetrievalError
from ragauge.retrieval.service.settings import FORKS

if TYPE_CHECKING:
    from ragauge.retrieval.service.server import Server

logger = logging.getLogger(__name__)

ANNOUNCEMENT = "serving "  # the line on standard output that announces the address of a ready server
START_S = 120.0  # for a server to load its index
STOP_S = 35.0  # for one to finish what runs, a little more than its own grace
POLL_S = 0.02
REAPED_S = 0.2
SIGNALS_S = 0.1  # longest until a signal is heard
LOOK_S = 0.5  # between looks whether a server is still needed


# --- in the server's process ---


def serve(
    server: Server,
    grace_s: float,
    while_stdin_open: bool = False,
    reload: Callable[[], None] | None = None,
    *,
    told: Callable[[], None] | None = None,
    over: Callable[[], bool] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests. Called from the main thread; a second signal exits.

    Args:
        grace_s: for running requests; those not finished by then are abandoned, and the process ends with exit code 1.
        while_stdin_open: also stop when standard input ends, as it does once the process that started this one has
            ended in any way.
        reload: called in a thread on SIGHUP, once for all signals that come while it runs.
        told: called when it answers.
        over: asked twice a second; true where it has served its purpose, and stops.
    """
    ended = threading.Event()
    if reload:
        again = threading.Event()
        signal.signal(signal.SIGHUP, lambda *_: again.set())
        threading.Thread(target=_reload_on, args=(again, reload), name="reload", daemon=True).start()

    def tell(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    if while_stdin_open:
        threading.Thread(target=_wait_for_end_of_input, args=(ended,), daemon=True).start()
    server.start()
    if told:
        told()
    print(f"{ANNOUNCEMENT}{server.address}", flush=True)
    while not ended.wait(SIGNALS_S if over is None else LOOK_S):
        # Handlers run in this thread alone, and a wait without end would not notice a signal that another took.
        if over and over():
            break
    logger.info("stopping: finishing what runs, for up to %g s", grace_s)
    if not server.stop(grace_s):
        logger.error("abandoned a search that was still running after %g s", grace_s)
        logging.shutdown()
        os._exit(1)  # there is no other way to stop its thread


def _reload_on(again: threading.Event, reload: Callable[[], None]) -> None:
    while again.wait():
        again.clear()
        try:
            reload()
        except UserError as error:
            logger.error("not reloaded, what was served goes on: %s", error)
        except Exception:
            logger.exception("not reloaded, what was served goes on")


def _wait_for_end_of_input(told: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    told.set()


# --- in the process that needs one ---


@dataclass(frozen=True)
class Running:
    """A running server."""

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def running(
    index: Path, *, options: Sequence[str] = (), start_s: float = START_S, stop_s: float = STOP_S
) -> Iterator[Running]:
    """A server of an index folder on a free port of this machine, for the length of the block.

        with running(folder, options=["--cores", "1"]) as server, Client(server.address) as client:
            client.search(queries)

    The server ends with this process, even if this process is killed.

    Args:
        options: options for `ragauge serve`.
        start_s: seconds until it must report that it serves.
        stop_s: seconds that it has to finish before it is killed.

    Raises:
        RetrievalError: it did not start, or ended during the block; the message has the last line that it wrote.
    """
    index = index.absolute()
    served = ["serve", "--database", str(index.parent.parent), "--index", index.name]
    command = [*_program(), *served, "--port", "0", "--while-stdin-open"]
    with running_command([*command, *options], start_s=start_s, stop_s=stop_s) as server:
        yield server


def _program() -> list[str]:
    """`ragauge`: a fork, in the jobs of a run of the workflow that has a process to fork from, else Python anew."""
    forks = os.environ.get(FORKS, "")
    return [forks] if os.path.exists(forks) else [sys.executable, "-m", "ragauge.cli"]


@contextmanager
def running_command(command: Sequence[str], *, start_s: float = START_S, stop_s: float = STOP_S) -> Iterator[Running]:
    """As `running`, of any command that announces its server as `serve` does and ends with its standard input."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)
        try:
            address = _announced(process, out, err, time.monotonic() + start_s, start_s)
            yield Running(address, process)
        except RetrievalError as error:
            if not _has_ended(process):
                raise
            raise RetrievalError(f"{error}; {_end(process, err)}") from error
        finally:
            _stop(process, stop_s)


def _announced(process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes], end: float, start_s: float) -> str:
    """The address of a server that answers."""
    while process.poll() is None and time.monotonic() < end:
        *lines, _unfinished = _written(out).split("\n")
        for line in lines:
            if line.startswith(ANNOUNCEMENT):
                return line.removeprefix(ANNOUNCEMENT)
        time.sleep(POLL_S)
    if process.poll() is None:
        raise RetrievalError(f"the retrieval server did not start to serve within {start_s:g} s: {_last_line(err)}")
    raise RetrievalError("the retrieval server could not be started")


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """A lost connection may be noticed slightly before its process exits."""
    try:
        process.wait(REAPED_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes], err: IO[bytes]) -> str:
    code = process.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"it {how}: {_last_line(err)}"


def _last_line(err: IO[bytes]) -> str:
    lines = _written(err).strip().splitlines()
    return lines[-1].strip() if lines else "it wrote no message"


def _written(file: IO[bytes]) -> str:
    """What a process has written to the file that was opened for it.

    The two share one position in the file: a seek here, between two writes there, would make the second overwrite
    what stands at the beginning.
    """
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def _stop(process: subprocess.Popen[bytes], stop_s: float) -> None:
    """Ask it to stop; kill it if it does not."""
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(stop_s)
    except subprocess.TimeoutExpired:
        logger.warning("the retrieval server did not end within %g s; killing it", stop_s)
        process.kill()
        process.wait()
