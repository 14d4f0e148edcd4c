"""`ragauge` for the jobs of a run on one machine, as forks of one process that has imported the heavy libraries.

Importing torch, pandas and matplotlib takes longer than many jobs. The process writes a command `ragauge` into a
folder, which the run has first on the PATH of its jobs. The command asks for a fork with its own arguments, folder,
environment and open files, and ends with the fork's exit status; a fork ends with the command that asked for it,
however that ends. If the process cannot be reached, and for jobs of several threads, some of which are timed, the
command starts Python by itself. The process ends when the run closes the pipe that it reads.

    python -m ragauge.verbs._warm FOLDER
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import shlex
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragauge import cli

# What jobs import, the libraries of most jobs first. Of those that start threads of their own, as gRPC, forks must not
# be made.
MODULES = (
    "ragauge.experiment.schema",
    "torch",
    "ragauge.evaluation.runner",
    "ragauge.engines.backends.torch",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_fast",
    "safetensors.torch",
    "ragauge.rendering.render",
    "ragauge.rendering.writing",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_pdf",
    "ragauge.results.provenance",
)
STARTER = """#!/bin/sh
exec {python} -IS {command} "$@"
"""
COMMAND = """
import json, os, socket, sys
arguments = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
try:
    if os.environ.get("OMP_NUM_THREADS") != "1":
        raise OSError("threads")
    server.connect({address!r})
    asked = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(asked)
except OSError:
    os.execv({python!r}, [{python!r}, "-m", "ragauge.cli", *arguments])
status = server.recv(1)
sys.exit(status[0] if status else 137)
"""
PIPE = 0  # the run's: nothing is written to it, and it closes when the run ends


def serve(folder: Path) -> None:
    """Write the command into `folder` and answer it until the run ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are reaped by the system
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the forks as well
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # a free name of the system's choice, without a file
        listener.listen(128)
        _write_command(folder, listener.getsockname())
        for name in MODULES:
            with suppress(ImportError):
                importlib.import_module(name)
            _answer_waiting(listener, wait_s=0)
        gc.freeze()  # keep existing objects out of garbage collection: forks share their memory
        while _answer_waiting(listener):
            pass


def _write_command(folder: Path, address: bytes) -> None:
    command, starter = folder.resolve() / "command.py", folder / "unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    command.write_text(COMMAND.format(python=sys.executable, address=address))
    starter.write_text(STARTER.format(python=shlex.quote(sys.executable), command=shlex.quote(str(command))))
    starter.chmod(0o755)
    starter.replace(folder / "ragauge")


def _answer_waiting(listener: socket.socket, wait_s: float | None = None) -> bool:
    """Make the forks that are asked for, and wait for more; False when the run has ended."""
    watched: list[Any] = [listener, PIPE]
    while ready := select.select(watched, [], [], wait_s)[0]:
        if PIPE in ready and not os.read(PIPE, 1):
            return False
        connection, _ = listener.accept()
        with connection:
            if _is_ours(connection) and not os.fork():
                listener.close()
                _do(connection)
    return True


def _is_ours(connection: socket.socket) -> bool:
    """Whether the command at the other end is of this user: a name without a file is open to all."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def _do(connection: socket.socket) -> None:
    """Run the requested command in this fork, then exit."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        size, files, *_ = socket.recv_fds(connection, 8, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with connection.makefile("rb") as asking:
            arguments, working, environment = json.loads(asking.read(int.from_bytes(size, "big")))
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(working)
        status = _status(arguments)
        connection.send(bytes([status]))
    finally:
        os._exit(status)


def _end_with(connection: socket.socket) -> None:
    """SIGKILL for this process when the command at the other end is gone."""
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _status(arguments: list[str]) -> int:
    """The exit status of `ragauge` with these arguments."""
    sys.argv = ["ragauge", *arguments]
    status: Any
    try:
        status = cli.main()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    _finish()
    return int(status or 0)


def _finish() -> None:
    """The visible part of what Python does on exit."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
