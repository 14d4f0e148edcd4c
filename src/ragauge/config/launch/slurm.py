"""The jobs that a killed run left in Slurm."""

import shutil
import subprocess
import time
from pathlib import Path

from ragauge.errors import UserError

LOGS = Path("logs", "slurm")  # profiles/slurm: slurm-logdir
JOB_NAMES = "ragauge_"  # profiles/slurm: slurm-jobname-prefix
ENDING_S = 300  # Slurm kills what does not end by itself, after its KillWait


def end_left_jobs(patience_s: float = ENDING_S) -> None:
    """Cancel the jobs that a killed run in this folder left, and wait until they have ended.

    They write the files that the next run makes. Call it with the folder locked, so that no jobs of
    a live run are cancelled.

    Raises:
        UserError: they do not end.
    """
    deadline = time.monotonic() + patience_s
    while jobs := left_jobs():
        if time.monotonic() > deadline:
            raise UserError(f"Slurm jobs of a run that was killed do not end: {' '.join(jobs)}")
        subprocess.run(["scancel", *jobs], check=False)
        time.sleep(2)


def left_jobs() -> list[str]:
    """Return the numbers of this user's jobs in Slurm that a run in this folder submitted."""
    if not LOGS.is_dir() or shutil.which("squeue") is None:
        return []
    command = ["squeue", "--me", "--noheader", "--format=%i|%j|%Z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    jobs = [line.split("|", 2) for line in listed.stdout.splitlines()]
    return [
        job
        for job, name, folder in jobs
        if name.startswith(JOB_NAMES) and Path(folder) == Path.cwd()
    ]
