"""Runs a command of ragauge in forks that are killed at one write to the disk after another, each then run again.

python tests/killed_runs.py FOLDER run --method ...   writes FOLDER/undisturbed.jsonl and FOLDER/<point>.jsonl

Forks share what one process imported, so that dozens of runs take the time of a few. Prints the number of points.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ragauge import cli
from ragauge.io import records


def main(folder: Path, arguments: list[str]) -> int:
    torch.set_num_threads(1)
    assert cli.main([*arguments, "--out", str(folder / "undisturbed.jsonl")]) == 0  # imports all there is to import
    for point in itertools.count():
        out = folder / f"{point}.jsonl"
        status = run_in_fork(out, arguments, killed_at=point)
        if not os.WIFSIGNALED(status):  # it ended before it came to this point
            out.unlink()
            records.meta_path(out).unlink()
            return point
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert exit_code(run_in_fork(out, arguments)) == 0
    raise AssertionError("no end")


def exit_code(status: int) -> int:
    return os.waitstatus_to_exitcode(status)


def run_in_fork(out: Path, arguments: list[str], killed_at: int | None = None) -> int:
    """The wait status of a child that runs the command."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        if killed_at is not None:
            kill_at(killed_at)
        os._exit(cli.main([*arguments, "--out", str(out)]))
    finally:
        os._exit(70)


def kill_at(point: int) -> None:
    """SIGKILL for this process when it is about to make its write number `point`, or is in the middle of a record."""
    steps = itertools.count()

    def is_now() -> bool:
        return next(steps) == point

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*args: Any, **options: Any) -> Any:
            if is_now():
                die()
            return function(*args, **options)

        return killed

    def torn(file: Any, line: str) -> None:
        if is_now():
            file.write(line.encode()[: len(line) // 2])
            die()
        write_line(file, line)

    write_line, records._write_line = records._write_line, torn
    os.fsync, os.replace, os.unlink = before(os.fsync), before(os.replace), before(os.unlink)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2:]))
