"""A retrieval server as a process: serving until a signal comes, and starting and stopping a server
from a job.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragauge.pipelines.service import jobs
from ragauge.pipelines.service.client import RetrievalError
from ragauge.pipelines.service.server import Server

logger = logging.getLogger(__name__)

# the line on standard output that announces the address of a ready server
ANNOUNCEMENT = "serving "
START_S = 120.0  # for a server to load its index
STOP_S = 35.0  # for one to finish what runs, a little more than its own grace
EXIT_S = 0.2  # between the loss of a connection and the end of its process
POLL_SIGNALS_S = 0.1


def serve(
    server: Server,
    grace_s: float,
    *,
    while_stdin_open: bool = False,
    address_file: Path | None = None,
    files: Sequence[Path] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests. Called from the main thread; a
    second signal exits.

    Args:
        grace_s: for running requests; if some are abandoned then, the process ends with exit code
            1.
        while_stdin_open: also stop when standard input ends, as when the process that started this
            one ended.
        address_file: where the address stands while the server answers.
        files: the server also stops when all of them are finished (`jobs.are_finished`).
    """
    stopped = threading.Event()

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if while_stdin_open:

        def stop_at_end_of_input() -> None:
            while os.read(sys.stdin.fileno(), 4096):
                pass
            stopped.set()

        threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    server.start()
    try:
        if address_file:
            jobs.write_address(address_file, server.address)
        print(f"{ANNOUNCEMENT}{server.address}", flush=True)
        while not (stopped.is_set() or (files and jobs.are_finished(files))):
            # in `stopped.wait` a signal's handler could wait for the lock that it interrupts
            time.sleep(POLL_SIGNALS_S)
    finally:
        if address_file:
            address_file.unlink(missing_ok=True)
    logger.info("stopping: finishing what runs, for up to %g s", grace_s)
    if not server.stop(grace_s):
        logger.error("abandoned a search that was still running after %g s", grace_s)
        logging.shutdown()
        os._exit(1)  # there is no other way to stop its thread


@dataclass(frozen=True)
class RunningServer:
    address: str
    process: subprocess.Popen[str]


def running(index: Path, *, options: Sequence[str] = ()) -> AbstractContextManager[RunningServer]:
    """Return a server of an index folder on a free port of this machine, for the length of the
    block; it ends with it. `options` are those of `ragauge serve`.

    Raises:
        RetrievalError: it did not start, or ended during the block; the message has the last line
            that it wrote.
    """
    index = index.absolute()
    served = ["serve", "--database", str(index.parent.parent), "--index", index.name]
    command = [sys.executable, "-m", "ragauge.cli", *served, "--port", "0", "--while-stdin-open"]
    return running_command([*command, *options])


@contextmanager
def running_command(
    command: Sequence[str], *, start_s: float = START_S, stop_s: float = STOP_S
) -> Iterator[RunningServer]:
    """Run, as `running` does, any command that announces its server as `serve` does and ends with
    its input.
    """
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield RunningServer(_announced_address(process, start_s), process)
        except RetrievalError as error:
            try:
                code = process.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                raise error from None
            how = (
                f"was killed by {signal.Signals(-code).name}"
                if code < 0
                else f"ended with exit code {code}"
            )
            # not by a seek: the position in the file is the process's too, which would overwrite
            # what it wrote
            written = os.pread(errors.fileno(), os.fstat(errors.fileno()).st_size, 0).decode(
                errors="replace"
            )
            last = (written.strip().splitlines() or ["it wrote no message"])[-1].strip()
            raise RetrievalError(f"{error}; it {how}: {last}") from error
        finally:
            process.terminate()
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(stop_s)
            except subprocess.TimeoutExpired:
                logger.warning("the retrieval server did not end within %g s; killing it", stop_s)
                process.kill()
                process.wait()


def _announced_address(process: subprocess.Popen[str], start_s: float) -> str:
    """Read the line that announces the server; kill one that does not announce itself in time."""
    assert process.stdout is not None
    end = time.monotonic() + start_s
    timer = threading.Timer(start_s, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if line.startswith(ANNOUNCEMENT):
                return line.removeprefix(ANNOUNCEMENT).strip()
    finally:
        timer.cancel()
    why = (
        "could not be started"
        if time.monotonic() < end
        else f"did not start to serve within {start_s:g} s"
    )
    raise RetrievalError(f"the retrieval server {why}")
