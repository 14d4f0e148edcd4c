"""The lock of the folder that a run works in, and the server that its jobs are forks of."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from filelock import FileLock, Timeout

from ragauge.cost.machine import uncommitted
from ragauge.errors import UserError

LOCK = Path(".snakemake", "ragauge.lock")
FORKS = Path(".snakemake", "forks")  # the folder of the command `ragauge` of jobs on this machine
FEW_JOBS = 3  # import what they need themselves
_STARTED: list[subprocess.Popen[bytes]] = []


def lock_folder(path: Path = LOCK) -> FileLock:
    """Lock the folder until this process ends.

    Snakemake's own lock outlives a killed run, which must be able to resume; so profiles/default
    turns it off.

    Raises:
        UserError: another run has locked it.
    """
    lock = FileLock(path, is_singleton=True)  # modules of one workflow share it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            "another run of this workflow is active in this folder; wait for it or stop it"
        ) from None
    return lock


def use_own_commands() -> None:
    """Have jobs find the commands of this environment, which need not be the active one."""
    own = sysconfig.get_path("scripts")
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = f"{own}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def check_committed(run: str, file: Path = Path(__file__)) -> None:
    """Raise UserError if a reference run, which is published, is of code that no commit has."""
    changed = uncommitted(file)
    if run.startswith("reference") and changed:
        raise UserError(
            f"reports/{run}: "
            f"{len(changed)} files have uncommitted changes, the first is {changed[0]}"
            "; commit them, or give the run a name that does not begin with 'reference'"
        )


def start_fork_server() -> None:
    """Have `ragauge` start at once in the jobs of this process (`ragauge.cli._fork_server`)."""
    if _STARTED or sys.platform != "linux" or os.environ.get("RAGAUGE_FORKS", "1") == "0":
        return
    command = [sys.executable, "-m", "ragauge.cli._fork_server", str(FORKS)]
    # as the jobs that it serves
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    (FORKS / "ragauge").unlink(missing_ok=True)  # of a run that ended
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **threads})
    _STARTED.append(process)  # the pipe stays open for as long as this process lives
    os.environ["PATH"] = f"{FORKS.resolve()}{os.pathsep}{os.environ.get('PATH', '')}"
