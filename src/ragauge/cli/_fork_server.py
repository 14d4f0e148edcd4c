"""`ragauge` for the jobs of a run on one machine, as forks of one process that has imported the
heavy libraries.

docs/architecture.md explains it ("Jobs and processes"). The process ends when the run closes the
pipe that it reads.

    python -m ragauge.cli._fork_server FOLDER
"""

import atexit
import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragauge.cli import _main

# Libraries that start threads of their own, such as gRPC, are not among these: a process with
# threads must not fork.
MODULES = (
    "ragauge.config.loading",
    "ragauge.measure.runner",
    "ragauge.engines.backends.torch",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_fast",
    "safetensors.torch",
    "ragauge.report.figures.writing",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_pdf",
    "ragauge.results.provenance",
)
COMMAND = """
import json, os, socket, sys
arguments = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
try:
    if os.environ.get("OMP_NUM_THREADS") != "1":
        raise OSError("threads")
    server.connect({address!r})
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
except OSError:
    os.execv({python!r}, [{python!r}, "-m", "ragauge.cli", *arguments])
status = server.recv(1)
sys.exit(status[0] if status else 137)
"""
RUN = 0  # the pipe from the run: nothing is written to it, and it closes when the run ends


def serve(folder: Path) -> None:
    """Write the command into `folder` and answer it until the run ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are reaped by the system
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the forks as well
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # keep existing objects out of garbage collection: forks share their memory
    private = tempfile.mkdtemp(prefix="ragauge-")  # a folder of this user alone
    address = f"{private}/socket"
    command = folder.resolve() / "command.py"
    starter = folder / "unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    command.write_text(COMMAND.format(python=sys.executable, address=address))
    starter.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(command))} "$@"\n'
    )
    starter.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        starter.replace(folder / "ragauge")
        watched: list[Any] = [listener, RUN]
        while RUN not in select.select(watched, [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if not os.fork():
                    listener.close()
                    _answer(connection)
    shutil.rmtree(private)


def _answer(connection: socket.socket) -> None:
    """Run the requested command in this fork with what Python runs on exit, then exit."""

    def end_with_command() -> None:  # which is at the other end of the connection
        connection.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        size, files, *_ = socket.recv_fds(connection, 8, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with connection.makefile("rb") as request:
            arguments, working, environment = json.loads(request.read(int.from_bytes(size, "big")))
        threading.Thread(target=end_with_command, daemon=True).start()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(working)
        sys.argv = ["ragauge", *arguments]
        try:
            status = _main.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        connection.send(bytes([status]))
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
