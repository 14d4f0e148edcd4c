"""Jobs that a killed run left in Slurm: they write the files that the next run makes."""

import shutil
import subprocess
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError

SLURM_LOGS = Path("logs/slurm")  # profiles/slurm: slurm-logdir
JOB_NAMES = "ragauge_"  # profiles/slurm: slurm-jobname-prefix
ENDING_S = 300  # Slurm kills what does not end by itself, after its KillWait


def end_left_jobs():
    """Cancel the jobs of this folder that a killed run left in Slurm, and wait until they are gone.

    Call it with the folder held: another run's jobs are not left. Answers that they made are not lost.
    """
    deadline = time.monotonic() + ENDING_S
    while left := left_jobs():
        if time.monotonic() > deadline:
            raise WorkflowError(f"Slurm jobs of a run that was killed do not end: {' '.join(left)}")
        subprocess.run(["scancel", *left], check=False)
        time.sleep(2)


def left_jobs():
    """The numbers of this user's jobs in Slurm that a run in this folder submitted."""
    if not SLURM_LOGS.is_dir() or shutil.which("squeue") is None:
        return []
    listed = ["squeue", "--me", "--noheader", "--format=%i|%j|%Z"]
    asked = subprocess.run(listed, capture_output=True, text=True, check=False)
    jobs = [line.split("|", 2) for line in asked.stdout.splitlines()]
    return [job for job, name, folder in jobs if name.startswith(JOB_NAMES) and Path(folder) == Path.cwd()]
