"""The progress of a workflow run: how many of its jobs and questions are done, and about how long
the rest takes.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.io.records import partial_path

# between two lines; between two looks where each job that is done has a line
PAUSE_S = 30.0
STEP_S = 1.0
# set in the environment: a line a job that is done, for those who do not see Snakemake's
STEPS = "RAGAUGE_STEPS"
MIN_SHARE = 0.02  # of the run that is done before the rest is estimated


@dataclass(frozen=True)
class JobProgress:
    is_done: Callable[[], bool]
    # the file of all questions, which an earlier job may have to make; None: it has none
    examples: Path | None = None
    records: Path = Path()  # of its answers
    limit: int | None = None  # of the questions; None: all
    part: int = 0
    parts: int = 1
    name: str = ""

    def count(self) -> tuple[int, int]:
        """(questions as far as their number is known, how many are answered)."""
        if self.examples is None:
            return 0, 0
        count = min(filter(None, (line_count(self.examples), self.limit)), default=0)
        count = (self.part + 1) * count // self.parts - self.part * count // self.parts
        # While the job runs, its records stand below the header of their file.
        return count, count if self.is_done() else min(
            max(line_count(partial_path(self.records)) - 1, 0), count
        )


class RunProgress(NamedTuple):
    jobs: int
    jobs_done: int
    questions: int
    questions_done: int

    @property
    def share(self) -> float:
        """The part of the run that is done; a question counts as much as a job without questions."""
        return (self.jobs_done + self.questions_done) / (self.jobs + self.questions)


def status(jobs: Sequence[JobProgress]) -> RunProgress:
    counts = [job.count() for job in jobs]
    done = sum(job.is_done() for job in jobs)
    return RunProgress(
        len(jobs), done, sum(count for count, _ in counts), sum(answered for _, answered in counts)
    )


def line(now: RunProgress, first: RunProgress, elapsed_s: float) -> str:
    """A line such as `12 of 129 jobs and 340 of 2,655 questions done; about 14 min left`."""
    questions = (
        f" and {now.questions_done:,} of {now.questions:,} questions" if now.questions else ""
    )
    share = now.share - first.share  # of this run: an earlier one may have answered some
    rest = ""
    if share >= MIN_SHARE:
        rest = f"; about {duration(elapsed_s * (1 - now.share) / share)} left"
    return f"{now.jobs_done} of {now.jobs} jobs{questions} done{rest}"


def start(jobs: Sequence[JobProgress]) -> None:
    """Print a line to stderr from time to time, as long as this process lives and something has
    changed.
    """
    steps = STEPS in os.environ

    def report() -> None:
        started = time.monotonic()
        first = status(jobs)
        last = first
        printed = started
        running = list(jobs)
        while last.jobs_done < last.jobs:
            time.sleep(STEP_S if steps else PAUSE_S)
            now = status(jobs)
            moment = time.monotonic()
            done = [job for job in running if steps and job.is_done()]
            # a job has ended, as Snakemake will see soon
            if now == last or now.questions_done < last.questions_done:
                continue
            if steps and not done and moment < printed + PAUSE_S:
                continue
            seconds = round(moment - started)
            step = (
                f"{seconds // 60}:{seconds % 60:02} {', '.join(job.name for job in done)}; "
                if done
                else ""
            )
            print(
                f"ragauge: {step}{line(now, first, moment - started)}", file=sys.stderr, flush=True
            )
            last = now
            printed = moment
            running = [job for job in running if job not in done]

    threading.Thread(target=report, name="progress", daemon=True).start()


def job_of(dag: Any, job: Any, limit: Callable[[Any], int | None]) -> JobProgress:
    """A job of Snakemake. `limit`: the number of questions of a job that answers some, by its
    labels.
    """
    name = " ".join([str(job.rule.name).replace("_", " "), *list(job.wildcards)[-1:]])
    if "records" not in job.output.keys() or "examples" not in job.input.keys():  # noqa: SIM118 (named lists)
        return JobProgress(lambda: bool(dag.finished(job)), name=name)
    labels = job.wildcards
    examples = Path(str(job.input.examples))
    records = Path(str(job.output.records))
    part = int(getattr(labels, "part", 0))
    parts = int(getattr(labels, "jobs", 1))
    return JobProgress(
        lambda: bool(dag.finished(job)), examples, records, limit(labels), part, parts, name
    )


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
