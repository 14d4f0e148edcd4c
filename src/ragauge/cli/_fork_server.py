"""Run the jobs of one machine as forks of a process that has imported the heavy libraries.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# Libraries that start threads of their own, such as gRPC, are not among these: a process with
# threads must not fork.
MODULES = (
    "ragauge.cli._main",
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
COMMANDS = {"ragauge": ("-m", "ragauge.cli")}  # name -> arguments of Python
CLIENT = """
import json, os, socket, sys
arguments = [*{prefix!r}, *sys.argv[1:]]
server = socket.socket(socket.AF_UNIX)
try:
    if os.environ.get("OMP_NUM_THREADS") != "1":
        raise OSError("threads")
    server.connect({address!r})
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
except OSError:
    os.execv({python!r}, [{python!r}, *arguments])
status = server.recv(1)
sys.exit(status[0] if status else 137)
"""
RUN = 0  # the pipe from the run: nothing is written to it, and it closes when the run ends


def run_ragauge(arguments: list[str]) -> int:
    """Run `ragauge`, as Python's arguments name it, and return its exit code."""
    from ragauge.cli import _main

    sys.argv = ["ragauge", *arguments[len(COMMANDS["ragauge"]) :]]
    return _main.main()


def serve(
    folder: Path,
    run: Callable[[list[str]], int] = run_ragauge,
    commands: Mapping[str, Sequence[str]] = COMMANDS,
    modules: Sequence[str] = MODULES,
) -> None:
    """Write the commands into `folder` and answer them until the run ends.

    Args:
        folder: where the commands lie.
        run: called in a fork with the arguments of Python; returns the exit code.
        commands: name -> the first arguments of Python, before those of the command.
        modules: modules that every fork has imported.
    """
    connections: dict[int, socket.socket] = {}  # of each fork

    def reap(*_: object) -> None:
        """Send its exit code to the command of each fork that ended, as a shell would have it."""
        with suppress(ChildProcessError):
            while True:
                fork, ended = os.waitpid(-1, os.WNOHANG)
                if not fork:
                    return
                code = os.waitstatus_to_exitcode(ended)
                with connections.pop(fork) as connection, suppress(OSError):
                    connection.send(bytes([code if code >= 0 else 128 - code]))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the forks as well
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, reap)
    gc.freeze()  # keep existing objects out of garbage collection: forks share their memory
    private = tempfile.mkdtemp(prefix="ragauge-")  # a folder of this user alone
    address = f"{private}/socket"
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        for name, prefix in commands.items():
            _write_command(folder, name, prefix, address)
        watched: list[Any] = [listener, RUN]
        while RUN not in select.select(watched, [], [])[0]:
            connection, _ = listener.accept()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            fork = os.fork()
            if not fork:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                listener.close()
                _answer(connection, run)
            connections[fork] = connection
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    shutil.rmtree(private)


def _write_command(folder: Path, name: str, prefix: Sequence[str], address: str) -> None:
    client = folder.resolve() / f"{name}.py"
    client.write_text(CLIENT.format(python=sys.executable, prefix=prefix, address=address))
    starter = folder / "unfinished"
    starter.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(client))} "$@"\n'
    )
    starter.chmod(0o755)
    starter.replace(folder / name)


def _answer(connection: socket.socket, run: Callable[[list[str]], int]) -> None:
    """Run the requested command in this fork with what Python runs on exit, then exit."""

    def end_with_command() -> None:  # which is at the other end of the connection
        connection.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    status = 1
    try:
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
        try:
            status = run(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
