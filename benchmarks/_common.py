"""What the benchmarks share: interleaved trials, the line that names the machine, the JSON object
at the end.
"""

import gc
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.cost.machine import MAX_LOAD, Load, competing_load, provenance
from ragauge.measure.protocols.latency import spread
from targets import Verdicts

Task = Callable[[], object]


def interleaved(
    tasks: Mapping[str, Task], trials: int, seed: int = 0
) -> tuple[dict[str, list[float]], Load]:
    """(seconds of each trial by name, competing load over all of them), after one untimed run of
    each.

    Every round runs each task once, in a random order.
    """
    for task in tasks.values():
        task()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    order = list(tasks)
    draw = random.Random(seed)
    gc.collect()
    with competing_load() as load:
        for _ in range(trials):
            draw.shuffle(order)
            for name in order:
                started = time.perf_counter()
                tasks[name]()
                seconds[name].append(time.perf_counter() - started)
    return seconds, load


def times(seconds: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """{"least", "median", "q1", "q3", "n"} of scaled seconds; ratios take `least`, as others' load
    only adds time.
    """
    scaled = [scale * value for value in seconds]
    return {"least": min(scaled), **spread(scaled)}


def load_line(load: Load) -> str:
    verdict = "" if load.share <= MAX_LOAD else ": too busy, these times are not to be reported"
    return f"competing load {load.share:.1%} of the CPU time (allowed: {MAX_LOAD:.0%}){verdict}"


def finish(result: Mapping[str, Any], verdicts: Verdicts, as_json: bool) -> None:
    """With `--json`, print the result as one line: {"provenance", **result, "targets", "missed",
    "not_measured"}.
    """
    if as_json:
        print(json.dumps({"provenance": provenance(), **result, **verdicts.to_json()}))
