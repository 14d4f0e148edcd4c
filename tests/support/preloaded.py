"""Python, ragauge and snakemake as forks of one process that has imported the heavy libraries.

A command of a workflow takes seconds to import torch, pandas and snakemake, and less than one to do
its work on a tiny model. `Preloaded` starts a process that has them and writes commands of those
names, which have it fork: a fork has the caller's arguments, folder, environment and open files,
and imports ragauge itself. It ends with the command that asked for it, however that ends.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

import psutil

LIBRARIES = (
    "torch",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.auto.configuration_auto",
    "transformers.tokenization_utils_fast",
    "transformers.models.llama.modeling_llama",
    "safetensors.torch",
    "bm25s",
    "pandas",
    "matplotlib.pyplot",
    "mpld3",
    "jinja2",
    "pydantic",
    "psutil",
    "snakemake.cli",
    "snakemake.api",
    "snakemake.workflow",
)
FLAGS = ("-IS", "-u")  # of Python, without a meaning for a fork
PATIENCE_S = 600  # on a machine that others use, too
RAGAUGE = f"""
import shutil, sys
sys.argv[0] = shutil.which("ragauge")
sys.path.append({str(Path(__file__).parent)!r})
import quick_machine
from ragauge import cli
quick_machine.shorten()
sys.exit(cli.main())
"""
COMMANDS = {"python": [], "ragauge": ["-c", RAGAUGE], "snakemake": ["-m", "snakemake"]}
COMMAND = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = {{"arguments": {prefix!r} + sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
request = json.dumps(asked).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
status = server.recv(1)
sys.exit(status[0] if status else 137)
"""


class Preloaded:
    """The process and, in `folder`, the commands."""

    def __init__(self, folder: Path, libraries: Sequence[str] = LIBRARIES) -> None:
        self.folder = folder
        address = str(folder / "socket")
        for name, prefix in COMMANDS.items():
            command = folder / name
            command.write_text(
                COMMAND.format(python=sys.executable, address=address, prefix=prefix)
            )
            command.chmod(0o755)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        env.pop("PYTHONPATH", None)  # each fork has the caller's
        server = [sys.executable, "-P", __file__, address, *libraries]
        self.process = subprocess.Popen(server, env=env, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Preloaded:
        assert self.process.stdout is not None
        # after what libraries may have said
        assert "ready\n" in iter(self.process.stdout.readline, "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        left = psutil.Process(self.process.pid).children(recursive=True)
        with self.process:
            self.process.kill()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def environment(self, **more: str) -> dict[str, str]:
        """Ours, with these commands first on the PATH."""
        path = f"{self.folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}

    def run(
        self, command: str, *arguments: str, folder: Path | None = None, **environment: str
    ) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(
            [str(self.folder / command), *arguments],
            cwd=folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def working(self, folder: Path) -> list[psutil.Process]:
        return [
            fork
            for fork in psutil.Process(self.process.pid).children()
            if fork.cwd() == str(folder)
        ]


def serve(address: str, libraries: Sequence[str]) -> None:
    for name in libraries:
        with suppress(ImportError):
            importlib.import_module(name)
    asking: dict[int, socket.socket] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _reap(asking))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            fork = os.fork()
            if not fork:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                listener.close()
                _answer(connection)
            asking[fork] = connection
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _reap(asking: dict[int, socket.socket]) -> None:
    """Tell the commands whose forks have ended, in whatever way, how they did."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = os.waitstatus_to_exitcode(ended[1])
            with asking.pop(ended[0]) as connection, suppress(OSError):
                connection.send(bytes([status if status >= 0 else 128 - status]))


def _answer(connection: socket.socket) -> None:
    """Do in this fork what the command at the other end asks, and end."""
    status = 70
    try:
        size, files, *_ = socket.recv_fds(connection, 8, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with connection.makefile("rb") as asking:
            asked = json.loads(asking.read(int.from_bytes(size, "big")))
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        status = _status(asked["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _end_with(connection: socket.socket) -> None:
    """SIGKILL for this process when the command at the other end is gone."""
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _status(arguments: list[str]) -> int:
    """The exit status of Python with these arguments."""
    try:
        _python(arguments)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _python(arguments: list[str]) -> None:
    # what this process starts is a fork, too
    sys.executable = str(Path(sys.argv[1]).with_name("python"))
    if arguments[0] in FLAGS:
        del arguments[0]
    first, *rest = arguments
    places = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[:0] = ["", *places]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv, sys.path[:0] = rest, [os.getcwd(), *places]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = arguments, [str(Path(first).resolve().parent), *places]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
