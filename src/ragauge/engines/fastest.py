"""The data type in which a decoder answers soonest on this machine: what `dtype: auto` stands for.

On a CPU a small decoder reads a prompt and writes an answer in each type, with the kernels chosen for it; the least sum
wins. It is measured once a machine, as the kernels are, and kept beside their table. On CUDA it is bfloat16 where the
device has it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ragauge.cost.hardware import DTYPES
from ragauge.cost.machine import competing_load
from ragauge.engines.kernels import measured
from ragauge.engines.lm import DTYPES as TORCH
from ragauge.engines.lm import LM, random_lm
from ragauge.engines.protocol import Limits, Row
from ragauge.errors import unknown
from ragauge.io import progress
from ragauge.io.files import write_file
from ragauge.io.folders import locked

VARIABLE = "RAGAUGE_DTYPE"  # says the type in place of a measurement
CANDIDATES = ("float32", "bfloat16")

PROMPT, ANSWER = 1000, 50  # tokens read and written
LAYERS = 4  # of the decoder that is timed
STEPS = 8  # tokens of the answer that are timed
ROUNDS, MOST_S = 3, 10.0  # fewer rounds if they take longer


def fastest(device: str = "cpu", threads: int | None = None, allowed: Sequence[str] = CANDIDATES) -> str:
    """The fastest of the data types that are allowed; one line on stderr says which and why.

    Args:
        threads: of a CPU; None: torch's own choice.

    Raises:
        UserError: the environment variable RAGAUGE_DTYPE names no data type.
    """
    stated = os.environ.get(VARIABLE)
    if stated and stated not in DTYPES:
        raise unknown("dtype", stated, DTYPES, VARIABLE)
    if len(allowed) == 1:
        return allowed[0]
    if stated:
        return stated
    if device != "cpu":
        return "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    seconds = speeds(threads)
    chosen = min(allowed, key=lambda dtype: answering_s(seconds[dtype]))
    told = ", ".join(f"{dtype} {1e3 * answering_s(seconds[dtype]):.0f} ms" for dtype in allowed)
    _say(f"ragauge: dtype auto: {chosen} (to read {PROMPT} tokens and write {ANSWER} with {LAYERS} layers: {told})")
    return chosen


@cache
def _say(line: str) -> None:
    """Once, however many models are asked for."""
    progress.line(line)


def answering_s(seconds: Mapping[str, float]) -> float:
    """Seconds of reading the prompt and writing the answer."""
    return seconds["prompt_s"] + ANSWER * seconds["token_s"]


def speeds(threads: int | None = None, again: bool = False) -> dict[str, dict[str, float]]:
    """Seconds of the small decoder by data type, from the file that keeps them; measured where there is none.

    Args:
        threads: None: torch's own choice.
        again: measure even if the file is there.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        about, path = _about(), _path()
        with locked(path):  # jobs that start together: one measures, the others read
            found = None if again else _read(path, about)
            if found is None:
                with competing_load() as load:
                    found = measure()
                kept = {"about": about, "load_share": load.share, "seconds": found}
                write_file(path, (json.dumps(kept, indent=1) + "\n").encode())
        return found
    finally:
        torch.set_num_threads(before)


def known() -> dict[str, dict[str, float]] | None:
    """The seconds that this machine's file holds for torch's present number of threads; nothing is measured."""
    if not measured.holds(CANDIDATES):
        return None
    return _read(_path(), _about())


def load_share() -> float:
    """The part of the machine that others took while the kept speeds were measured; 0 where there are none."""
    try:
        return float(json.loads(_path().read_bytes())["load_share"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _path() -> Path:
    return measured.table_path().with_suffix(".dtypes.json")


def _about() -> dict[str, Any]:
    """What the seconds depend on. Measures the kernels where they were not yet."""
    kernels = [measured.choice(TORCH[dtype]).named(TORCH[dtype]) for dtype in CANDIDATES]
    return {"kernels": kernels, "sizes": _sizes()}


def measure() -> dict[str, dict[str, float]]:
    """Least seconds of the prompt and of a token in each data type, which take turns."""
    tasks = {dtype: _tasks(random_lm(measured.few_layers(LAYERS), dtype=dtype)) for dtype in CANDIDATES}
    least: dict[str, dict[str, float]] = {dtype: {} for dtype in CANDIDATES}
    begun = time.perf_counter()
    for turn in range(ROUNDS + 1):
        if turn > 1 and time.perf_counter() - begun > MOST_S:
            break
        for dtype, parts in tasks.items():
            for name, run in parts.items():
                started = time.perf_counter()
                run()
                seconds = (time.perf_counter() - started) / (STEPS if name == "token_s" else 1)
                if turn:  # the first one warms up
                    least[dtype][name] = min(least[dtype].get(name, seconds), seconds)
    return least


def _tasks(lm: LM) -> dict[str, Callable[[], object]]:
    """Reading the prompt, and STEPS steps after it."""
    row = Row([1] * PROMPT, [float(i) for i in range(PROMPT)])
    limits = Limits(max_new_tokens=STEPS + 1, ignore_stop=True)
    cache = lm.new_cache(PROMPT + STEPS + 1)
    logits: list[torch.Tensor] = []

    def read() -> None:
        cache.truncate(0)
        extension = lm.extend(cache, [row], stage="prompt", last_logits=True)
        assert extension.last_logits is not None
        logits[:] = [extension.last_logits[0]]

    def write() -> None:
        cache.truncate(PROMPT)
        lm.generate(cache, logits[0], float(PROMPT), limits)

    return {"prompt_s": read, "token_s": write}


def _sizes() -> list[Any]:
    return [PROMPT, measured.MODEL, LAYERS, STEPS, ROUNDS]


def _read(path: Path, about: Mapping[str, Any]) -> dict[str, dict[str, float]] | None:
    """The seconds that a file holds; None if it is missing, damaged or of other kernels."""
    try:
        found = json.loads(path.read_bytes())
        if found["about"] != about or measured.outdated(path, found["load_share"]):
            return None
        return {
            dtype: {name: float(found["seconds"][dtype][name]) for name in ("prompt_s", "token_s")}
            for dtype in CANDIDATES
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
