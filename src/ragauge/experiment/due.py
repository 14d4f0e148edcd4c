"""The answers that a workflow run will make: a job that has loaded a model also answers for jobs that wait.

Only Snakemake knows which jobs are due. It writes them when a run begins; jobs read them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.io.files import write_file


class DueAnswers(NamedTuple):
    """A job that answers questions."""

    dataset: str  # labels
    model: str
    variant: str
    part: tuple[int, int] | None  # of the questions; None: all
    out: str  # the file of records
    inputs: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether everything that the job reads is there."""
        return all(Path(path).exists() for path in self.inputs)


def of_job(job: Any) -> DueAnswers:
    """The description of a Snakemake job with the output `records`."""
    labels = job.wildcards
    part = (int(labels.part), int(labels.jobs)) if hasattr(labels, "part") else None
    inputs = tuple(map(str, job.input))
    return DueAnswers(labels.dataset, labels.model, labels.variant, part, str(job.output.records), inputs)


def write(path: Path, jobs: Iterable[DueAnswers]) -> None:
    """Write what is due, under a name of this run."""
    content = {"workflow": uuid.uuid4().hex, "answers": sorted(jobs, key=str)}
    write_file(path, (json.dumps(content) + "\n").encode())


def read(path: Path) -> tuple[str, list[DueAnswers]]:
    """The name of the run, and what is due; nothing if no run wrote it, or a damaged file: jobs then answer alone."""
    try:
        content = json.loads(path.read_bytes())
        answers = [
            DueAnswers(dataset, model, variant, tuple(part) if part else None, out, tuple(inputs))
            for dataset, model, variant, part, out, inputs in content["answers"]
        ]
        return str(content["workflow"]), answers
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", []
