"""transformers' Trainer with a time budget, a loss curve, and checkpoints from which a killed run
resumes.
"""

import logging
import pickle
import re
import shutil
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ragauge.errors import UserError, error_line
from ragauge.io.files import os_errors_as_user_errors

logger = logging.getLogger(__name__)

# Trainer's names; the state is written last
CHECKPOINT = "checkpoint-"
STATE = "trainer_state.json"
DAMAGE = (
    pickle.UnpicklingError,
    SafetensorError,
    EOFError,
    KeyError,
    OSError,
    ValueError,
    RuntimeError,
)
UNREPORTED = ("learning_rate", "grad_norm", "epoch")


class TimedTrainer(Trainer):
    """A training that ends after its steps or minutes, whichever comes first; minutes count over
    all its runs. `state.log_history` is the loss curve: every entry has its step and the seconds
    until then.
    """

    reports_every_step = True

    def __init__(
        self, model: nn.Module, folder: Path, minutes: float | None, steps: int, **arguments: Any
    ) -> None:
        """`folder` is that of the checkpoints; `arguments` are those of `TrainingArguments`."""
        self.folder = folder
        self.minutes = minutes
        self.checkpoint, state = last_checkpoint(folder)
        # of runs before
        self.earlier_s = float(state.log_history[-1]["seconds"]) if state.log_history else 0.0
        self.started: float | None = None
        self.measured_s = self.earlier_s  # when the curve got its last point
        is_over = minutes is not None and self.earlier_s >= 60 * minutes and state.global_step > 0
        training_arguments = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=1,
            max_steps=state.global_step if is_over else max(steps, state.global_step),
            train_sampling_strategy="sequential",
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",  # `_AfterStep` decides on checkpoints
            save_total_limit=1,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            eval_on_start=self.checkpoint is None,
            **arguments,
        )
        super().__init__(
            model,
            training_arguments,
            data_collator=lambda numbers: self.example(numbers[0]),
            # numbers
            train_dataset=range(
                training_arguments.max_steps
                * training_arguments.gradient_accumulation_steps
                * training_arguments.world_size
            ),
            callbacks=[_AfterStep(self)],
        )
        self.remove_callback(PrinterCallback)

    @property
    def seconds(self) -> float:
        """Seconds of training until now, in all runs."""
        return self.earlier_s + (time.perf_counter() - self.started if self.started else 0.0)

    @abstractmethod
    def example(self, number: int) -> Any:
        """Return the training example of a number, counted over all steps and processes."""

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """Losses on held-out text; empty if there is none."""

    @abstractmethod
    def pauses(self, step: int) -> tuple[bool, bool]:
        """Return whether to (measure, write a checkpoint) after this step."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """Return the share of the learning rate at this step, counted from 0."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        self.lr_scheduler = LambdaLR(self.optimizer, self.rate)
        return self.lr_scheduler

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Add a point of the held-out losses to the curve."""
        self.model.eval()
        with torch.no_grad():
            losses = self.measure()
        self.measured_s = self.seconds
        if losses:
            self.log({**losses, "learning_rate": self._get_learning_rate()})
        self.control.should_evaluate = False
        return losses

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, "seconds": round(self.seconds, 3)}, start_time)
        is_report = "train_runtime" not in logs and (self.reports_every_step or "loss" not in logs)
        if is_report and self.is_world_process_zero():
            losses = ", ".join(
                f"{key} {value:.4f}" for key, value in logs.items() if key not in UNREPORTED
            )
            logger.info("step %d, %.0f s: %s", self.state.global_step, self.seconds, losses)

    def run(self) -> list[dict[str, float]]:
        """Train until the budget is spent; returns the curve.

        Raises:
            UserError: the last checkpoint is damaged.
        """
        if self.checkpoint:
            logger.info("resuming after step %s", self.checkpoint.name.removeprefix(CHECKPOINT))
        try:
            self.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)
        except DAMAGE as error:
            # nothing is read from it once training has begun
            if self.checkpoint is None or self.started:
                raise
            raise UserError(
                f"{self.checkpoint}: damaged ({error_line(error)[:200]}); "
                f"remove {self.folder} to train from the beginning"
            ) from error
        return [point for point in self.state.log_history if "train_runtime" not in point]

    def _save_checkpoint(self, *given: Any) -> None:
        with os_errors_as_user_errors(self.folder):
            super()._save_checkpoint(*given)

    def remove_others(self) -> None:
        """Remove the checkpoints of trainings with other settings, data or code."""
        for other in self.folder.parent.iterdir():
            if other != self.folder and re.fullmatch("[0-9a-f]{16}", other.name):
                shutil.rmtree(other)


class _AfterStep(TrainerCallback):
    """Decides on measurements, checkpoints and the end of a `TimedTrainer`."""

    def __init__(self, trainer: TimedTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.trainer.started = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        trainer = self.trainer
        step = state.global_step
        [is_late] = broadcast_object_list(
            [trainer.minutes is not None and trainer.seconds >= 60 * trainer.minutes]
        )
        control.should_training_stop = is_over = is_late or step >= state.max_steps
        control.should_evaluate, control.should_save = (
            is_over or is_pending for is_pending in trainer.pauses(step)
        )


def last_checkpoint(folder: Path) -> tuple[Path | None, TrainerState]:
    """(the newest complete checkpoint of a folder, its state).

    One that a killed run left unfinished does not count.
    """
    numbered = {
        int(path.name.removeprefix(CHECKPOINT)): path for path in folder.glob(f"{CHECKPOINT}[0-9]*")
    }
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            return path, TrainerState.load_from_json(str(path / STATE))
        except (OSError, ValueError, TypeError, RecursionError):
            continue
    return None, TrainerState()
