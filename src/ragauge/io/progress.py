"""Progress bars and status lines on stderr."""

import sys
from typing import Any

from ragauge.io.redaction import redacted

AFFECTS_RESULTS = False

TERMINAL_S = 0.2
LOG_S = 2.0  # between two updates of a bar: on a terminal, and in a file, where each is a line

hidden = False


def hide(value: bool) -> None:
    """Hide bars and lines in this process, or show them again."""
    global hidden
    hidden = value


def line(text: str) -> None:
    if not hidden:
        print(redacted(text), file=sys.stderr, flush=True)


def bar(what: str, unit: str, total: int | None = None, done: int = 0, **options: Any) -> Any:
    """Return a tqdm bar: a context whose `update(n)` moves it, or, with `iterable=items`, a loop
    over these. `unit` is singular; `done` are units of an earlier run, which do not count for the
    rate.
    """
    from tqdm import tqdm

    pause = TERMINAL_S if sys.stderr.isatty() else LOG_S
    return tqdm(
        desc=what,
        unit=unit,
        total=total,
        initial=done,
        mininterval=pause,
        disable=hidden,
        **options,
    )
