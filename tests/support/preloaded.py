"""Python, ragauge and snakemake as forks of one process that has imported the heavy libraries.

A command of a workflow takes seconds to import torch, pandas and snakemake, and less than one to do
its work on a tiny model. `Preloaded` starts the package's own fork server with these commands: a
fork has the caller's arguments, folder, environment and open files, and imports ragauge itself.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType

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
from ragauge.cli._main import main
quick_machine.shorten()
sys.exit(main())
"""
COMMANDS = {"python": [], "ragauge": ["-c", RAGAUGE], "snakemake": ["-m", "snakemake"]}


class Preloaded:
    """The process and, in `folder`, the commands."""

    def __init__(self, folder, libraries=LIBRARIES):
        self.folder = folder
        server = [sys.executable, "-P", __file__, str(folder), *libraries]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(server, env=env, stdin=subprocess.PIPE)

    def __enter__(self):
        while not all((self.folder / name).exists() for name in COMMANDS):
            assert self.process.poll() is None, "it could not be started"
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind,
        error,
        at,
    ):
        left = psutil.Process(self.process.pid).children(recursive=True)
        with self.process:  # it ends when its pipe is closed
            pass
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def environment(self, **more):
        """Ours, with these commands first on the PATH."""
        path = f"{self.folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}

    def run(self, command, *arguments, folder=None, **environment):
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

    def working(self, folder):
        return [
            fork
            for fork in psutil.Process(self.process.pid).children()
            if fork.cwd() == str(folder)
        ]


def run_python(arguments):
    """Run Python with these arguments in this fork and return its exit code."""
    sys.executable = str(Path(sys.argv[1]) / "python")  # what this fork starts is a fork, too
    for name in [name for name in sys.modules if name.partition(".")[0] == "ragauge"]:
        del sys.modules[name]  # the caller may have another
    if arguments[0] in FLAGS:
        del arguments[0]
    first, *rest = arguments
    places = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    try:
        if first == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[:0] = ["", *places]
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), vars(main))
        elif first == "-m":
            sys.argv = rest
            sys.path[:0] = [os.getcwd(), *places]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[:0] = [str(Path(first).resolve().parent), *places]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    from ragauge.cli import _fork_server

    _fork_server.serve(Path(sys.argv[1]), run_python, COMMANDS, sys.argv[2:])
