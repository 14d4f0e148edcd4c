"""The time by which a command ends."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ragauge.errors import UserError

PATIENCE_S = 5.0  # for a command to end the processes that it started
PAUSE_S = 0.2  # between two looks at a command
OWN = "ragauge: "  # begins the lines that are for the user, among those of Snakemake


class _OverError(BaseException):
    """Ends the running code, whatever exceptions it catches."""


class Deadline:
    """So many seconds from now on; None: no limit."""

    def __init__(self, budget_s: float | None) -> None:
        self.budget_s = budget_s
        self.started = time.monotonic()

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        return self.at(1.0) - time.monotonic()

    def at(self, share: float) -> float:
        """The moment of the monotonic clock when a share of the budget is spent."""
        return math.inf if self.budget_s is None else self.started + share * self.budget_s

    @contextmanager
    def guarding(self, activity: str) -> Iterator[None]:
        """Raise UserError, which names the activity, inside the block when the time is over."""
        if self.budget_s is None:
            yield
            return

        def end(number: int, frame: object) -> None:
            raise _OverError

        former = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, max(self.left_s, 0.001))
        try:
            yield
        except _OverError:
            raise UserError(
                f"--budget: {self.budget_s:.0f} s were over while {activity}; what is done remains"
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)

    def run(self, command: Sequence[str], log: Path, reserve_s: float = 0.0) -> int | None:
        """Run a command; return its exit code, or None if it was ended, with all that it started,
        to have a reserve. What it prints goes to the log, and the lines of ragauge among it to the
        screen as well.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("wb") as output,
            log.open(encoding="utf-8", errors="replace") as printed,
            subprocess.Popen(
                command,
                start_new_session=True,
                # which a shell has what it starts in the background ignore
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                while process.poll() is None:
                    if self.left_s < reserve_s:
                        return None
                    time.sleep(PAUSE_S)
                    _show(printed)
                return process.returncode
            finally:
                _show(printed)
                # as a terminal would, and after some patience with its whole session
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(PATIENCE_S)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _show(printed: Iterable[str]) -> None:
    for line in printed:
        if line.startswith(OWN):
            print(line, end="", flush=True)
