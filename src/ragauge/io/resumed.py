"""Work in steps whose results outlive a kill, within a time limit."""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ragauge.io.files import locked

Item = TypeVar("Item")


def results(
    path: Path,
    identity: str,
    items: Sequence[Item],
    work: Callable[[Item], Any],
    minutes: float | None = None,
) -> list[Any]:
    """The JSON results of the first items: of all, or of those that the minutes suffice for, and of
    one at least. `path`: file of the results, a line each, with which the next call goes on; of
    another identity, it is replaced.

    Raises:
        UserError: another process is writing it.
    """
    header = identity.encode() + b"\n"
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    with locked(path, wait=False):
        written = path.read_bytes() if path.is_file() else b""
        if not written.startswith(header):
            written = header
            path.write_bytes(written)
        *lines, torn = written.split(b"\n")
        os.truncate(path, len(written) - len(torn))  # a line that a kill cut off
        outcomes = [json.loads(line) for line in lines[1:]]
        with path.open("ab", buffering=0) as file:
            for item in items[len(outcomes) :]:
                if outcomes and time.monotonic() > end:
                    break
                line = json.dumps(work(item))
                file.write(line.encode() + b"\n")
                outcomes.append(json.loads(line))
        return outcomes
