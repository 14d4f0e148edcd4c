"""The start of a workflow run: check its configuration, lock its folder, cancel Slurm jobs that a
killed run left.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from ragauge.assets import pins
from ragauge.config import dtypes, loading
from ragauge.config.experiment import Config
from ragauge.errors import UserError
from ragauge.io import progress, safe_yaml
from ragauge.io.files import write_file

SNAKEFILE = Path("workflow", "Snakefile")
PROFILE = Path("profiles", "default")
LOCK = Path(".snakemake", "ragauge.lock")
SLURM_LOGS = Path("logs", "slurm")  # profiles/slurm: slurm-logdir
JOB_NAMES = "ragauge_"  # profiles/slurm: slurm-jobname-prefix
FORKS = Path(".snakemake", "forks")  # the folder of the command `ragauge` of jobs on this machine
FEW_JOBS = 3  # import what they need themselves
# fewer jobs are not estimated; an estimate takes some seconds, a minute at most
ESTIMATED_JOBS = 30
ESTIMATE_S = 90
_STARTED: list[subprocess.Popen[bytes]] = []
FAILED_JOB = r"^Error in rule (\S+):\n(?:    .*\n)*?    jobid: (\d+)\n(?:    .*\n)*?    log: (.+?)(?:, .*)? \(check log"
ENDING_S = 300  # Slurm kills what does not end by itself, after its KillWait


def workflow_files() -> Path:
    """Find the folder of `workflow` and `profiles`: in the clone that this package is in, or in a
    wheel's package.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_workflow", package.parents[1]):
        if (folder / SNAKEFILE).is_file():
            return folder
    raise UserError(
        f"{package}: installed without the workflow's files; install a wheel of ragauge, or a clone"
    )


def command(folder: Path, config: Path, cores: str = "all") -> list[str]:
    """Return the command of the package's own workflow in a folder that has none. Both paths are
    absolute. Snakemake looks for profiles next to the Snakefile and where it is started; the
    package's are in neither place.
    """
    files = workflow_files()
    where = ["--snakefile", str(files / SNAKEFILE), "--workflow-profile", str(files / PROFILE)]
    return [
        "snakemake",
        *where,
        "--directory",
        str(folder),
        "--configfile",
        str(config),
        "--cores",
        cores,
    ]


def check_module(paths: Any) -> None:
    """Raise UserError if a workflow that uses this one as a module changes (`paths`) what its
    commands name, too.
    """
    if paths.prefix or paths.modifies_prefixes:
        raise UserError(
            "module: prefix and replace_prefix are not supported; the configuration's `run` names folders"
        )


def begin_with(workflow: Any, outer: Callable[[Any], None], begin: Callable[[], None]) -> None:
    """Have `begin` called when a run starts of a workflow that uses this one as a module. `outer`:
    the handler before this module was read, which comes first. Snakemake calls one `onstart`
    handler: that of the main Snakefile or, in older versions, of whichever is read last.
    """

    def start_both(log: Any) -> None:
        outer(log)
        begin()

    # once for each `use rule`
    read_before = getattr(outer, "__qualname__", "") == start_both.__qualname__
    workflow._onstart = outer if read_before else start_both


def experiment(
    merged: Mapping[str, Any], files: Sequence[str], changes: Mapping[str, Any] | None
) -> Config:
    """Check the configuration of a run, `merged` as Snakemake has it, with the `changes` of the
    command line (`--config`). Each of its files is read again for what `merged` does not show, such
    as a key that stands twice. Raises UserError on the first mistake.
    """
    for path in files:
        loading.read(Path(path))
    place = os.path.relpath(files[-1]) if files else "--config"
    return loading.parse(retyped(merged, changes or {}), place)


def retyped(data: Any, given: Any) -> Any:
    """Return `data` with the command line's values in their types: Snakemake reads nested ones as
    text.
    """
    if isinstance(given, Mapping):
        return {
            key: retyped(value, given[key]) if key in given else value
            for key, value in data.items()
        }
    if isinstance(given, list):
        return [retyped(value, value) for value in given]
    return safe_yaml.load(given) if isinstance(given, str) else given


def lock_folder(path: Path = LOCK) -> FileLock:
    """Lock the folder until this process ends. Raises UserError if another run has locked it.
    Snakemake's own lock outlives a killed run, which must be able to resume; so profiles/default
    turns it off.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            "another run of this workflow is active in this folder; wait for it or stop it"
        ) from None
    return lock


def start_fork_server(folder: Path = FORKS) -> None:
    """Have `ragauge` start at once in the jobs of this process (`ragauge.cli._fork_server`)."""
    if sys.platform != "linux" or os.environ.get("RAGAUGE_FORKS", "1") == "0":
        return
    command = [sys.executable, "-m", "ragauge.cli._fork_server", str(folder)]
    # as the jobs that it serves
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    (folder / "ragauge").unlink(missing_ok=True)  # of a run that ended
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **threads})
    _STARTED.append(process)  # the pipe stays open for as long as this process lives
    os.environ["PATH"] = f"{folder.resolve()}{os.pathsep}{os.environ.get('PATH', '')}"


def say_estimate(config: Config, settings: Path, jobs: int, cores: int) -> None:
    """Say what a run that begins does, and about how long it takes on this machine. `settings`: the
    file of the configuration, every `dtype` resolved.
    """
    progress.line(f"{jobs} jobs of this experiment:\n{config.plan()}")
    if jobs < ESTIMATED_JOBS:
        return
    command = [
        sys.executable,
        "-m",
        "ragauge.cli",
        "estimate",
        str(settings),
        "--brief",
        "--quiet",
        f"--cores={cores}",
    ]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ESTIMATE_S, check=False
        )
        if done.returncode == 0:
            progress.line(done.stdout.strip())


def write_settings(config: Config, path: Path, files: Sequence[str] = ()) -> None:
    """Write the checked configuration for the commands of the rules to read; `dtype: auto` is
    resolved.

    The lock of the configuration, the last of its `files`, is copied next to it, and is in use from
    here on.

    Not a rule's output: Snakemake does not look at the parameters of jobs below one that runs. The
    rules have what they use of it as parameters.
    """
    config = dtypes.resolved(config, path)
    write_file(path, yaml.safe_dump(config.model_dump(exclude_none=True), sort_keys=False).encode())
    lock = pins.lock_path(Path(files[-1])) if files else None
    if lock and lock.is_file():
        pins.write(pins.lock_path(path), pins.read(lock))
        pins.activate_lock(path)
    else:
        pins.lock_path(path).unlink(missing_ok=True)


def write_clients(clients: Mapping[str, Sequence[str]]) -> None:
    """List in the file of each server that is a job what is made with it, and remove that of an
    earlier run.
    """
    for path, made in clients.items():
        for stale in made:
            Path(stale).unlink(missing_ok=True)
        write_file(Path(path), "".join(f"{line}\n" for line in made).encode())


def failed_jobs(logs: Sequence[str]) -> list[str]:
    """A line for each job that failed in every attempt, from Snakemake's logs of a run: its rule,
    its own log, and how that ends.
    """
    text = "\n".join(Path(log).read_text(errors="replace") for log in logs if Path(log).is_file())
    found = {}
    for match in re.finditer(FAILED_JOB, text, re.MULTILINE):
        rule, job, path = match.groups()
        if f"Finished jobid: {job} " not in text[match.end() :]:
            lines = (
                Path(path).read_text(errors="replace").splitlines()
                if Path(path).is_file()
                else ["no log"]
            )
            found[job] = (
                f"{rule} failed: {path}: {next(filter(str.strip, reversed(lines)), 'empty')}"
            )
    return list(found.values())


def end_left_jobs(patience_s: float = ENDING_S) -> None:
    """Cancel the jobs that a killed run in this folder left in Slurm, and wait until they have
    ended. They write the files that the next run makes. Call it with the folder locked, so that no
    jobs of a live run are cancelled. Raises UserError if they do not end.
    """
    deadline = time.monotonic() + patience_s
    while left := left_jobs():
        if time.monotonic() > deadline:
            raise UserError(f"Slurm jobs of a run that was killed do not end: {' '.join(left)}")
        subprocess.run(["scancel", *left], check=False)
        time.sleep(2)


def left_jobs() -> list[str]:
    """Return the numbers of this user's jobs in Slurm that a run in this folder submitted."""
    if not SLURM_LOGS.is_dir() or shutil.which("squeue") is None:
        return []
    command = ["squeue", "--me", "--noheader", "--format=%i|%j|%Z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    jobs = [line.split("|", 2) for line in listed.stdout.splitlines()]
    return [
        job
        for job, name, folder in jobs
        if name.startswith(JOB_NAMES) and Path(folder) == Path.cwd()
    ]
