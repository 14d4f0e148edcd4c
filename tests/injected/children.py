"""Work in a forked process whose disk, clock or memory fails it, and how that ends."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from ragauge.cli import DISK
from ragauge.errors import UserError

LIBRARY = "RAGAUGE_FAULTS"  # in the environment of a process that has `disk.c` loaded: where it lies
LONGEST_S = 60  # that any work may take, on a machine with other work
Say = Callable[[str], None]
Work = Callable[[Path, Say], Any]


class How(IntEnum):
    """What befalls the operation, as `disk.c` numbers it."""

    NOTHING = 0
    KILLED_BEFORE = 1
    KILLED_WITHIN = 2
    FULL = 3
    READ_ONLY = 4
    STOPPED = 5
    CLOCK = 6


@dataclass(frozen=True)
class Disturbance:
    """What a child has to put up with, from its operation number `at` on."""

    how: How = How.NOTHING
    at: int = 0
    jump_s: int = 0  # of the wall clock
    memory: int | None = None  # bytes of address space beyond what it has


@dataclass
class Ended:
    """How a child ended."""

    status: int  # exit code, or minus the signal
    lines: list[str] = field(default_factory=list)  # what it said: done KEY, error TEXT, defect TEXT, steps N

    @property
    def done(self) -> set[str]:
        """What was on the disk, by its own account."""
        return {line.removeprefix("done ") for line in self.lines if line.startswith("done ")}

    @property
    def steps(self) -> int:
        """Operations on the disk."""
        return next(int(line.removeprefix("steps ")) for line in self.lines if line.startswith("steps "))

    @property
    def said(self) -> str:
        """The one line for the user, or the traceback."""
        return "\n".join(line.partition(" ")[2] for line in self.lines if line.startswith(("error ", "defect ")))


def load_library(module: str, folder: Path) -> None:
    """Go on as `python -m module` with `disk.c` loaded, unless it is. It is compiled into the folder."""
    if LIBRARY in os.environ:
        return
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise UserError("faults: a C compiler is needed (cc, gcc or clang)")
    library, source = folder / "disk.so", Path(__file__).with_name("disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    preloaded = {**os.environ, LIBRARY: str(folder), "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], preloaded)


class Child:
    """A process that does work in a folder, under a disturbance."""

    def __init__(self, work: Work, folder: Path, disturbance: Disturbance) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._read)
            _live(work, folder, disturbance, write)
        os.close(write)

    def stops(self) -> bool:
        """Whether it reaches its operation, where it stops, rather than its end."""
        status = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return status is not None and status.si_code == os.CLD_STOPPED

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        descriptor = os.pidfd_open(self.pid)
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def end(self) -> Ended:
        """Wait for its end."""
        with open(self._read, encoding="utf-8", errors="replace") as pipe:
            lines = pipe.read().split("\0")[:-1]
        return Ended(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), lines)


def run(work: Work, folder: Path, disturbance: Disturbance | None = None) -> Ended:
    """How work ends."""
    return Child(work, folder, disturbance or Disturbance()).end()


def _live(work: Work, folder: Path, disturbance: Disturbance, pipe: int) -> NoReturn:
    """The whole life of a child; it ends as the command line does."""

    def say(kind: str, text: str) -> None:
        os.write(pipe, f"{kind} {text}\0".encode())

    status = 70
    try:
        signal.alarm(LONGEST_S)
        logging.disable(logging.CRITICAL)
        _silence()
        _arm(folder, disturbance)
        try:
            work(folder, lambda key: say("done", key))
            status = 0
        except UserError as error:
            status = 2
            _disarm()
            say("error", " ".join(str(error).split()))
        except OSError as error:
            status = 2 if error.errno in DISK else 70
            _disarm()
            say("error" if status == 2 else "defect", str(error) if status == 2 else traceback.format_exc())
        except MemoryError:
            status = 2
            _disarm()
            say("error", "out of memory")
        say("steps", str(_disarm()))
    except BaseException:
        _disarm()
        say("defect", traceback.format_exc())
    finally:
        os._exit(status)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def _arm(folder: Path, disturbance: Disturbance) -> None:
    if disturbance.memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + disturbance.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    loaded = ctypes.CDLL(None)
    loaded.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    loaded.fault_steps.restype = ctypes.c_long
    loaded.fault_arm(os.fsencode(folder), disturbance.how, disturbance.at, disturbance.jump_s)


def _disarm() -> int:
    """The operations so far; from now on nothing is disturbed."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    loaded = ctypes.CDLL(None)
    steps = int(loaded.fault_steps())
    loaded.fault_arm(b"", 0, 0, 0)
    return steps


def one_line(ended: Ended) -> bool:
    """Whether it ended with one line for the user."""
    return ended.status == 2 and bool(ended.said) and "\n" not in ended.said and "Traceback" not in ended.said
