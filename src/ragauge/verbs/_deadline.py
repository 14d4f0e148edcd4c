"""A time by which a command ends, whatever it is at."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from ragauge.errors import UserError

PATIENCE_S = 5.0  # for a command to end what it has started


class _OverError(BaseException):
    """Ends what runs, whatever mistakes it would catch."""


class Deadline:
    """From now on so many seconds; None: no limit."""

    def __init__(self, budget_s: float | None) -> None:
        self.budget_s, self.began = budget_s, time.monotonic()

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def left_s(self) -> float:
        return math.inf if self.budget_s is None else self.budget_s - self.spent_s

    def at(self, share: float) -> float:
        """The moment of the monotonic clock when a share of the budget is spent."""
        return math.inf if self.budget_s is None else self.began + share * self.budget_s

    @contextmanager
    def guarding(self, what: str) -> Iterator[None]:
        """Raise UserError inside the block when the time is over.

        Args:
            what: was going on, for the message.
        """
        if self.budget_s is None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def over(number: int, frame: FrameType | None) -> None:
            raise _OverError

        former = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, max(self.left_s, 0.001))
        try:
            yield
        except _OverError:
            message = f"--budget: {self.budget_s:.0f} s were over while {what}; what is done remains"
            raise UserError(message) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)

    def run(self, command: Sequence[str], reserve_s: float = 0.0) -> int | None:
        """The exit code of a command; None: it was ended, with all that it had started, for the reserve was left."""
        if self.budget_s is None:
            return subprocess.run(command, env=os.environ, check=False).returncode
        with subprocess.Popen(command, env=os.environ, start_new_session=True, preexec_fn=_interruptible) as process:
            try:
                return process.wait(max(0.0, self.left_s - reserve_s))
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)


def _interruptible() -> None:
    """A shell has what it starts in the background ignore interrupts, and so do the processes that this starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process as a terminal would, and after some patience it and all of its session."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
