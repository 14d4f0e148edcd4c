"""Runs of the workflow on Slurm, and what Slurm says of their jobs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import workflow_folder

WAIT_S = 1800  # on a machine that others use, too
PROFILE = ("--profile", "profiles/slurm")
FORMAT = (
    "JobID:|,State:|,Partition:|,NumCPUs:|,MinMemory:|,TimeLimit:|,OverSubscribe:|,Feature:|,tres-per-job:|,"
    "WorkDir:|,Comment:|"
)


@dataclass(frozen=True)
class Job:
    """A job as Slurm knows it, ended or not."""

    number: str
    state: str  # PENDING, RUNNING, COMPLETED, CANCELLED, ...
    partition: str
    cpus: int
    memory_mb: int
    minutes: int
    alone: bool  # on its node
    feature: str  # of the node, that it asked for
    gpus: int
    folder: Path  # where it runs
    what: str  # rule_<rule>, or rule_<rule>_wildcards_<their values>

    @property
    def rule(self) -> str:
        return self.what.removeprefix("rule_").partition("_wildcards_")[0]


def jobs(folder: Path) -> list[Job]:
    """The jobs of the runs in `folder`, in the order they were submitted."""
    listed = subprocess.run(
        ["squeue", "--states=all", "--noheader", "--sort=i", f"--Format={FORMAT}"],
        capture_output=True,
        text=True,
        check=True,
    )
    known = [_job(line.split("|")) for line in listed.stdout.splitlines()]
    return [job for job in known if job.folder == folder]


def failures(folder: Path) -> list[str]:
    """What the jobs said that Slurm does not call completed."""
    return [
        f"{job.what}: {job.state}\n{log.read_text(errors='replace')[-4000:]}"
        for job in jobs(folder)
        if job.state != "COMPLETED"
        for log in (folder / "logs" / "slurm").glob(f"**/{job.number}.log")
    ]


def _job(fields: list[str]) -> Job:
    number, state, partition, cpus, memory, limit, shared, feature, tres, folder, what, _ = fields
    asked = {"cpus": int(cpus), "memory_mb": _megabytes(memory), "minutes": _minutes(limit), "alone": shared == "NO"}
    gpus = int(tres.removeprefix("gres:gpu:")) if tres.startswith("gres:gpu:") else 0
    return Job(number, state, partition, feature=feature, gpus=gpus, folder=Path(folder), what=what, **asked)


def _megabytes(memory: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+)([MGT])", memory).groups()  # type: ignore[union-attr]
    return round(float(number) * {"M": 1, "G": 1024, "T": 1024**2}[unit])


def _minutes(limit: str) -> int:
    """Of Slurm's days-hours:minutes:seconds."""
    days, _, clock = limit.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 1440 + seconds // 60


def run(folder: Path, *arguments: str) -> str:
    """A run of the workflow that has to succeed; what it printed."""
    done = workflow_folder.snakemake(folder, *arguments, timeout_s=WAIT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-12000:]
    return done.stdout + done.stderr


def wait_for(what: str, happened: Callable[[], Any]) -> Any:
    """What `happened` returns once that is true."""
    deadline = time.monotonic() + WAIT_S
    while not (result := happened()):
        assert time.monotonic() < deadline, f"no {what} in {WAIT_S} s"
        time.sleep(0.05)
    return result


def lines(path: Path) -> list[bytes]:
    """The lines of a file that are whole; none where there is no file yet."""
    *whole, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return whole
