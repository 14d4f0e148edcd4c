"""Shared parts of the benchmarks: options, interleaved trials, the load line, the JSON result."""

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.cost.machine import MAX_LOAD, Load, competing_load, provenance
from targets import Verdicts

Task = Callable[[], object]
Option = tuple[Any, str]  # its default, or its type where it has none, and its help

MODEL: Option = ("smollm2-135m-instruct", "a name of the catalog, a source or a folder")
DTYPES: Option = (["float32", "bfloat16"], "types of the decoder's numbers")
THREADS: Option = (int, "default: torch's own choice")
JSON: Option = (False, "print the result as JSON in the last line")


def parse_options(doc: str | None, *positional: str, **options: Option) -> argparse.Namespace:
    """Parse a script's command line; every script has `--json`.

    Args:
        doc: the script's docstring, whose first line describes it.
        positional: names of required paths.
        options: name -> (default, help). The default gives the type: False is a flag, a list takes
            values separated by commas, a type has no default.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name in positional:
        parser.add_argument(name, type=Path)
    for name, (default, text) in {**options, "json": JSON}.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=text)
        elif isinstance(default, list):
            parser.add_argument(
                flag, type=lambda values: values.split(","), default=default, help=text
            )
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, help=text)
        else:
            parser.add_argument(
                flag, type=type(default), default=default, help=f"{text} ({default})"
            )
    return parser.parse_args()


def interleaved(
    tasks: Mapping[str, Task], trials: int, seed: int = 0
) -> tuple[dict[str, list[float]], Load]:
    """Run each task once untimed, then once a round in a random order.

    Returns:
        The seconds of each trial by name, and the competing load over all of them.
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
    """Summarise scaled seconds as {"least", "median", "q1", "q3", "n"}.

    Ratios are of `least`, since other processes only add time.
    """
    scaled = [scale * value for value in seconds]
    q1, median, q3 = map(float, np.quantile(scaled, (0.25, 0.5, 0.75)))
    return {"least": min(scaled), "median": median, "q1": q1, "q3": q3, "n": len(scaled)}


def load_line(load: Load) -> str:
    """Say how busy other processes were, and whether the times may be reported."""
    verdict = "" if load.share <= MAX_LOAD else ": too busy, these times are not to be reported"
    return f"competing load {load.share:.1%} of the CPU time (allowed: {MAX_LOAD:.0%}){verdict}"


def finish(result: Mapping[str, Any], verdicts: Verdicts, as_json: bool) -> None:
    """With `--json`, print the result, its provenance and the verdicts on targets as one line."""
    if as_json:
        print(json.dumps({"provenance": provenance(), **result, **verdicts.to_json()}))
