"""Pin a process to processor cores; to be imported before numerical libraries, whose threads keep
their cores.
"""

import os

from ragauge.errors import UserError


def pin(cores: str) -> None:
    """Pin this process to processor cores: `0`, `0,2` or `0-3`.

    Raises:
        UserError: a core that it may not use.
    """
    try:
        ends = [[int(end) for end in part.split("-", 1)] for part in cores.split(",")]
    except ValueError:
        raise UserError(f"cores {cores!r}: must be a list of cores, as in 0 or 0-3") from None
    allowed = os.sched_getaffinity(0)
    selected = {core for core in allowed if any(each[0] <= core <= each[-1] for each in ends)}
    if any(each[0] > each[-1] or not {each[0], each[-1]} <= selected for each in ends):
        raise UserError(
            f"cores {cores!r}: this process may use {', '.join(map(str, sorted(allowed)))}"
        )
    os.sched_setaffinity(0, selected)
