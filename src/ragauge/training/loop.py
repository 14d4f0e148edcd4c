"""The loop that all trainings share: steps until the budget is spent, with evaluation and checkpoints."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Point = TypeVar("Point")


@dataclass
class Progress(Generic[Point]):
    """The progress of a training, from which a killed run resumes together with its checkpoint."""

    fingerprint: str  # of everything that the weights depend on except when training ends
    step: int = 0  # optimizer steps done
    seconds: float = 0.0  # of all runs together
    curve: list[Point] = field(default_factory=list)


class Training(ABC, Generic[Point]):
    """A training from scratch or from the checkpoint of a killed run, until its budget is spent."""

    def __init__(self, fingerprint: str) -> None:
        self.progress: Progress[Point] = Progress(fingerprint)

    @abstractmethod
    def learn(self) -> float:
        """Take the next step; returns its loss."""

    @abstractmethod
    def measure(self, loss: float | None = None) -> None:
        """Add points to the curve; `loss` is that of the step before."""

    @abstractmethod
    def save(self) -> None:
        """Write what is needed to resume from here."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether the budget of steps or time is spent; the same on every process."""

    @abstractmethod
    def is_measured(self) -> bool:
        """Whether to measure after the step just taken."""

    @abstractmethod
    def is_saved(self) -> bool:
        """Whether to save after the step just taken."""

    def run(self) -> None:
        """Train until the budget is spent; the last state is always saved."""
        before, started = self.progress.seconds, time.perf_counter()

        def elapse() -> None:
            self.progress.seconds = before + time.perf_counter() - started

        ends = self.is_over()
        if not ends and not self.progress.curve:
            self.measure()
        while not ends:
            loss = self.learn()
            self.progress.step += 1
            elapse()
            ends = self.is_over()
            if ends or self.is_measured():
                self.measure(loss)
                elapse()
                ends = ends or self.is_over()
            if ends or self.is_saved():
                self.save()
