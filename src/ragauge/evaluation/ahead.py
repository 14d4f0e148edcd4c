"""Jobs of one workflow run that answer for each other: a model is loaded once per process, not once per variant.

A job answers its own questions first, then those of other jobs of its data set and model that nobody answers yet. What
it answers for another job it leaves in that job's partial file: the job takes it from there, and nothing is in a
finished file that its own job has not put there. A job whose questions are being answered by another one does the same
until they are.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragauge.datasets import Example
from ragauge.evaluation import runner
from ragauge.experiment.due import DueAnswers
from ragauge.io.records import BusyError
from ragauge.io.specifications import AnswerSpecification
from ragauge.methods import Method

logger = logging.getLogger(__name__)

PAUSE_S = 0.2  # between two looks at a file that another job writes


@dataclass(frozen=True)
class Job:
    """A variant and the questions that it answers."""

    specification: AnswerSpecification
    method: Method
    examples: Sequence[Example]
    variant: str
    out: Path


class Other(NamedTuple):
    """Another job of the run."""

    due: DueAnswers
    job: Callable[[], Job]  # raises UserError if its inputs are invalid


@dataclass
class Workers:
    """What the jobs of one workflow run share, as one of their processes sees it."""

    loaded: runner.Engines
    workflow: str = ""  # the name of the run
    overwrite: bool = False  # records of another run are replaced
    until: float = math.inf  # of the monotonic clock, in seconds: from then on nothing is started for others
    retry_failed: bool = False  # the job's own questions that failed are asked again

    def run(self, job: Job, others: Sequence[Other]) -> None:
        """Answer a job's questions, and those of others for as long as there is time.

        Raises:
            UserError: as `runner.run`, for the job itself; other jobs report their own mistakes.
        """
        waiting = list(others)
        while True:
            try:
                return self._answer(job, meanwhile=lambda: self._help_all(waiting))
            except BusyError:
                if not self._help_one(waiting):
                    time.sleep(PAUSE_S)

    def _help_all(self, waiting: list[Other]) -> None:
        while self._help_one(waiting):
            pass

    def _help_one(self, waiting: list[Other]) -> bool:
        """Answer for the first job that no other process answers, and remove it; False if there is none."""
        for other in list(waiting) if time.monotonic() < self.until else []:
            try:
                if other.due.ready:
                    self._answer(other.job(), ahead=True)
                    waiting.remove(other)
                    return True
            except BusyError:
                continue
            except Exception as error:  # its own job will meet it again and report it in full
                logger.warning("%s: left to its own job: %s", other.due.out, " ".join(str(error).split()))
                waiting.remove(other)
        return False

    def _answer(self, job: Job, ahead: bool = False, meanwhile: Callable[[], None] | None = None) -> None:
        runner.run(
            job.specification,
            job.method,
            job.examples,
            variant=job.variant,
            out=job.out,
            loaded=self.loaded,
            overwrite=self.overwrite,
            workflow=self.workflow,
            ahead=ahead,
            retry_failed=self.retry_failed and not ahead,
            meanwhile=meanwhile,
        )
