"""The progress of a workflow run: how many of its jobs are done, and about how long the rest takes."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAUSE_S = 30.0  # between two lines
STEP_S = 1.0  # between two lines for those who do not see Snakemake's
STEPS = "RAGAUGE_STEPS"  # set in the environment for them
MIN_SHARE = 0.02  # of the run that is done before the rest is estimated
ALL_QUESTIONS = 100  # counted for a job that answers all questions of a data set
TIMED = ("latency", "load", "stream")  # rules of jobs that time methods
TIMED_QUESTIONS = 50  # counted for one of them


class JobProgress(NamedTuple):
    name: str
    is_done: Callable[[], bool]
    weight: int = 1  # of its time: its questions, or what counts as them, and one


def line(jobs: Sequence[JobProgress], pending: Sequence[JobProgress], elapsed_s: float) -> str:
    """A line such as `12 of 129 jobs done; about 14 min left`."""
    rest = sum(job.weight for job in pending) / sum(job.weight for job in jobs)
    text = f"{len(jobs) - len(pending)} of {len(jobs)} jobs done"
    if rest > 1 - MIN_SHARE:
        return text
    return f"{text}; about {duration(elapsed_s * rest / (1 - rest))} left"


def start(jobs: Sequence[JobProgress]) -> None:
    """Print a line to stderr from time to time where jobs have ended, as long as this process lives."""

    def report() -> None:
        started = time.monotonic()
        pending = list(jobs)
        while pending:
            time.sleep(STEP_S if STEPS in os.environ else PAUSE_S)
            done = [job for job in pending if job.is_done()]
            if done:
                pending = [job for job in pending if job not in done]
                elapsed_s = time.monotonic() - started
                names = f"{', '.join(job.name for job in done)}; " if STEPS in os.environ else ""
                text = f"ragauge: {names}{line(jobs, pending, elapsed_s)}"
                print(text, file=sys.stderr, flush=True)

    threading.Thread(target=report, name="progress", daemon=True).start()


def job_of(dag: Any, job: Any, limit: Callable[[Any], int | None]) -> JobProgress:
    """A job of Snakemake. `limit`: the number of questions of a job that answers some, by its
    labels.
    """
    name = " ".join([str(job.rule.name).replace("_", " "), *list(job.wildcards)[-1:]])
    asks = hasattr(job.output, "records") and hasattr(job.input, "examples")
    questions = (limit(job.wildcards) or ALL_QUESTIONS) if asks else 0
    weight = 1 + (TIMED_QUESTIONS if job.rule.name in TIMED else questions)
    return JobProgress(name, lambda: bool(dag.finished(job)), weight)


def duration(seconds: float) -> str:
    """Write seconds in words: 40 s, 2.5 min, 12 min, 3.5 h, 2.0 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:{'.2g' if seconds < 570 else '.0f'}} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def line_count(path: Path) -> int:
    """Count the lines of a file; 0 where there is none yet."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0
