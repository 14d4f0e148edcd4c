"""What is told of long work on stderr: bars of how far it is and how long it will still take, and lines."""

from __future__ import annotations

import sys
from typing import Any

from ragauge.io.redaction import redacted

TERMINAL_S, LOG_S = 0.2, 2.0  # between two states of a bar: where it moves, and where each is a line of a file

_hidden = False


def hide(hidden: bool = True) -> None:
    """Tell nothing in this process, or again all."""
    global _hidden
    _hidden = hidden


def line(text: str) -> None:
    """What is being done, or was chosen."""
    if not _hidden:
        print(redacted(text), file=sys.stderr, flush=True)


def bar(what: str, unit: str, total: int | None = None, done: int = 0, *, disable: bool = False, **options: Any) -> Any:
    """A tqdm bar: a context whose `update(n)` moves it, or, with `iterable=items`, a loop over these.

    Args:
        unit: what is counted, in the singular.
        total: all of them; None where nobody knows.
        done: those that an earlier run has done, which say nothing of this one's rate.
        disable: show none, as where all are hidden.
        options: further ones of tqdm.
    """
    from tqdm import tqdm

    pause = TERMINAL_S if sys.stderr.isatty() else LOG_S
    return tqdm(
        desc=what, unit=unit, total=total, initial=done, mininterval=pause, disable=disable or _hidden, **options
    )
