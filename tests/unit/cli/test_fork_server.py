"""The command `ragauge` of a run's jobs: it does what Python does that starts by itself, and ends
as it does.
"""

import os
import subprocess
import sys
import time

import psutil
import pytest

from ragauge.testing import write_checkpoint, write_questions

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs sockets with names of their own"
)
PATIENCE_S = 120
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# The process, in which one verb has a defect, which tells its forks from other processes.
STARTED = """
import sys
from pathlib import Path
from ragauge.cli import _fork_server, validate
validate.run = lambda args: 1 / 0
_fork_server.serve(Path(sys.argv[1]), modules=_fork_server.MODULES[: int(sys.argv[2])])
"""


def wait_for(happened):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


class ForkServer:
    """The process, and its command."""

    def __init__(self, folder, modules=9):
        self.command = folder / "a folder" / "ragauge"
        server = [sys.executable, "-c", STARTED, str(self.command.parent), str(modules)]
        self.process = psutil.Popen(server, stdin=subprocess.PIPE, env=ENVIRONMENT)
        wait_for(self.command.exists)

    def end(self):
        """The exit code, once its run has ended."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def run(self, *arguments, **options):
        given = {
            "capture_output": True,
            "text": True,
            "env": ENVIRONMENT,
            "timeout": PATIENCE_S,
        } | options
        return subprocess.run([self.command, *arguments], check=False, **given)


def plain(*arguments):
    command = [sys.executable, "-m", "ragauge.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    started = ForkServer(tmp_path_factory.mktemp("forks"))
    yield started
    assert started.end() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "methods"],
        ["run", "--method", "naiv", "--dataset", "nq_open", "--model", "m", "--out", "x.jsonl"],
    ],
)
def test_output_and_exit_code_are_those_of_the_command_itself(forks, arguments):
    there = forks.run(*arguments)
    here = plain(*arguments)
    assert (there.returncode, there.stdout, there.stderr) == (
        here.returncode,
        here.stdout,
        here.stderr,
    )


def test_a_command_has_its_own_folder_and_environment(forks, tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("text")
    given = {"cwd": tmp_path, "env": {**ENVIRONMENT, "RAGAUGE_HOME": str(tmp_path / "home")}}
    done = forks.run("fetch", "path:source.txt", "--out", "manifest.json", **given)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "manifest.json").is_file()


def test_a_defect_is_a_traceback(forks):
    done = forks.run("validate", "none.yaml")
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert forks.run("--version").returncode == 0


def test_a_job_of_several_threads_is_no_fork(forks):
    done = forks.run("validate", "none.yaml", env={**ENVIRONMENT, "OMP_NUM_THREADS": "2"})
    assert done.returncode == 2
    assert done.stderr.startswith("ragauge: error: none.yaml: cannot be read")


def answering(forks, folder):
    """A command that answers many questions, its fork, and the records so far."""
    model = write_checkpoint(folder / "model")
    data = write_questions(folder / "nq.jsonl", 300)
    source = ["--dataset", "nq_open", "--data", str(data), "--model", str(model), "--threads", "1"]
    arguments = ["run", "--method", "naive", *source, "--out", str(folder / "x.jsonl")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = psutil.Popen([forks.command, *arguments], env=ENVIRONMENT, **quiet)
    partial = folder / "x.jsonl.partial"
    wait_for(lambda: partial.exists() and partial.read_bytes().count(b"\n") > 3)
    [fork] = forks.process.children()
    return command, fork, partial


def test_a_fork_and_its_command_end_together_and_the_others_go_on(forks, tmp_path):
    command, fork, partial = answering(forks, tmp_path)
    command.kill()
    command.wait()
    wait_for(lambda: not fork.is_running())
    assert partial.exists(), "it ended before its last question"
    assert forks.run("--version").returncode == 0
    command, fork, _ = answering(forks, tmp_path / "second")
    fork.kill()
    assert command.wait(PATIENCE_S) == 137


def test_the_process_ends_with_the_run_and_commands_do_without_it(tmp_path):
    started = ForkServer(tmp_path, modules=0)
    assert started.end() == 0
    assert started.run("--version").stdout == plain("--version").stdout
