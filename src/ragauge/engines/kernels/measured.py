"""The choice that fits the machine at hand: every candidate is timed once, and the table kept beside the assets.

Candidates take turns, and the least time of each counts: others' work on the machine only ever adds to a time. One
replaces torch's own kernel where it needs 5% less in the odd rounds and in the even ones.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragauge.assets import store
from ragauge.cost.machine import competing_load, cpu_model
from ragauge.cost.shape import Shape
from ragauge.cost.shapes import named
from ragauge.engines.kernels import candidates, compiled
from ragauge.engines.kernels.candidates import (
    ATTENTIONS,
    COMPILED,
    COMPILED_INPUT,
    INT8_PRODUCTS,
    LIKELIHOODS,
    PASSES,
    PRODUCTS,
    Kernel,
)
from ragauge.engines.kernels.choice import ALL, Choice, Classes
from ragauge.errors import UserError, unknown
from ragauge.io.files import write_file
from ragauge.io.folders import file_sha256, locked

VARIABLE = "RAGAUGE_KERNELS"

MODEL = "smollm2-135m-instruct"  # a decoder of its sizes is what is timed
LAYER = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # matrices (out, in) of a layer of SmolLM2-135M
HEADS, KV_HEADS, DIM = 9, 3, 64  # of its attention
KEYS = 1000  # that a single query attends to
COLD_LAYERS = 8  # matrices or keys that one token passes: more than a cache near a core holds
FEW_ROWS, MANY_ROWS, QUERIES, SCORED = 8, 256, 512, 64

GAIN = 0.95  # the part of torch's own time that another kernel may take at most
HOPELESS = 3  # times the least time of all, after two rounds
ROUNDS, BUDGET_S, MOST_S = 6, 0.3, 1.5  # of each class: rounds, for longer if they are short and fewer if they are long
LOADED, LOADED_S = 0.25, 3600.0  # a table made under more than this load is measured again after so many seconds

Task = Callable[[Kernel], object]


def choice(dtype: torch.dtype, setting: str | None = None, weights: str = "full") -> Choice:
    """The kernels for the data type on this machine with torch's present number of threads.

    Args:
        weights: how matrices are kept, one of `cost.hardware.WEIGHTS`.
        setting: default (torch's own), measured, or the file of a table that `ragauge doctor kernels --out` wrote;
            None: what the environment variable RAGAUGE_KERNELS says, else measured.

    Raises:
        UserError: the file is no such table.
    """
    setting = setting or os.environ.get(VARIABLE) or "measured"
    if setting == "default":
        return Choice("default")
    if setting != "measured":
        return read(Path(setting))
    return Choice("measured", {**kept(dtype), **(kept(torch.int8) if weights == "int8" else {})})


def kept(dtype: torch.dtype, again: bool = False) -> dict[str, Any]:
    """This machine's tables by data type, from the file that keeps them; what it lacks of this type is measured.

    Args:
        again: measure the data type even if the file has it.
    """
    name, path = str(dtype).removeprefix("torch."), table_path()
    if again or name not in (found := _read(path)):
        with locked(path):  # jobs that start together: one measures, the others read
            found = _read(path)
            if again or name not in found:
                found = {**found, name: measure(dtype)}
                write_file(path, stated(found))
    return found


def holds(dtypes: Iterable[str]) -> bool:
    """Whether this machine's file has the tables of these data types."""
    return set(dtypes) <= set(_read(table_path()))


def stated(tables: Mapping[str, Any]) -> bytes:
    """Tables as a file that `read` takes."""
    return (json.dumps({"machine": machine(), "kernels": tables}, indent=1) + "\n").encode()


def read(path: Path) -> Choice:
    """The choice that a file holds, whatever the machine.

    Raises:
        UserError: it cannot be read, or names a kernel or a class that there is not.
    """
    try:
        table = json.loads(path.read_bytes())["kernels"]
    except OSError as error:
        raise UserError(f"kernels: {path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"kernels: {path}: not a table of kernels, as `ragauge doctor kernels --out` writes it"
        ) from None
    check(table, f"kernels: {path}")
    return Choice(str(path), table)


def check(table: Any, place: str) -> None:
    """Raise UserError where this is no table of kernels that there are."""
    if not isinstance(table, Mapping):
        raise UserError(f"{place}: an object by dtype is needed, not {type(table).__name__}")
    for dtype, rows in table.items():
        if dtype not in (known := [str(one).removeprefix("torch.") for one in candidates.MEASURED]):
            raise unknown("dtype", dtype, known, place)
        for what, row in rows.items() if isinstance(rows, Mapping) else ():
            if what not in ALL:
                raise unknown("class", what, ALL, f"{place}: {dtype}")
            names = valid(what, getattr(torch, dtype))
            named = row.get("kernel") if isinstance(row, Mapping) else row
            if not isinstance(named, str) or named not in names:
                raise unknown("kernel", str(named), names, f"{place}: {dtype}: {what}")


def valid(what: str, dtype: torch.dtype) -> dict[str, Kernel]:
    """The candidates of a class in a data type."""
    products = INT8_PRODUCTS if dtype == torch.int8 else PRODUCTS
    others = {
        **dict.fromkeys((Classes.QUERY, Classes.QUERIES), ATTENTIONS),
        **dict.fromkeys((Classes.STEP, Classes.STEPS), PASSES),
        Classes.LIKELIHOOD: LIKELIHOODS,
    }
    every = others.get(what, products)
    least = {Classes.ONE: 1, Classes.QUERY: 1, Classes.STEP: 1, Classes.FEW: 16, Classes.STEPS: 16}.get(what, 17)
    found = {
        name: kernel
        for name, kernel in every.items()
        if dtype in kernel.dtypes and kernel.most >= least and kernel.usable(dtype)
    }
    ours = (COMPILED, COMPILED_INPUT)
    if any(name in found for name in ours) and compiled.library() is None:
        return {name: kernel for name, kernel in found.items() if name not in ours}
    return found


def machine() -> dict[str, Any]:
    """What a table holds for: other values have another table."""
    return {
        "cpu": cpu_model(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "code": file_sha256(Path(candidates.__file__))[:12],
        "compiled": compiled.about(),
    }


@torch.inference_mode()
def measure(dtype: torch.dtype) -> dict[str, Any]:
    """Class -> the kernel that is chosen, each candidate's least seconds, and the share of the machine others took."""
    tasks = _int8_tasks() if dtype == torch.int8 else _tasks(dtype)
    table = {what: _measured(valid(what, dtype), task) for what, task in tasks.items()}
    return table | {what: _measured(valid(what, dtype), task) for what, task in passes(dtype, table).items()}


def _measured(kernels: Mapping[str, Kernel], task: Task) -> dict[str, Any]:
    for kernel in kernels.values():
        task(kernel)
    halves: list[dict[str, float]] = [{}, {}]
    running = dict(kernels)
    started, done = time.perf_counter(), 0
    with competing_load() as load:
        while done < 2 or (spent := time.perf_counter() - started) < BUDGET_S or (done < ROUNDS and spent < MOST_S):
            least = halves[done % 2]
            for name, kernel in running.items():
                least[name] = min(least.get(name, math.inf), _seconds(task, kernel))
            done += 1
            if done == 2:
                running = {n: k for n, k in kernels.items() if n == "plain" or not _hopeless(n, halves)}
    seconds = {name: min(half[name] for half in halves) for name in kernels}
    return {"kernel": fastest_of(halves, seconds), "seconds": seconds, "load_share": load.share}


def _hopeless(name: str, halves: list[dict[str, float]]) -> bool:
    """Whether a kernel took so long that more rounds would be wasted on it."""
    return min(half[name] for half in halves) > HOPELESS * min(min(half.values()) for half in halves)


def fastest_of(halves: list[dict[str, float]], seconds: dict[str, float]) -> str:
    """The fastest of the kernels that are clearly faster than torch's own, both times."""
    faster = [name for name in seconds if all(half[name] < GAIN * half["plain"] for half in halves)]
    return min(faster, key=seconds.__getitem__, default="plain")


def _seconds(task: Task, kernel: Kernel) -> float:
    started = time.perf_counter()
    task(kernel)
    return time.perf_counter() - started


def _tasks(dtype: torch.dtype) -> dict[str, Task]:
    """One run of each class: what takes some milliseconds of a decoder of SmolLM2's sizes."""
    matrices = [torch.full(size, 0.01, dtype=dtype) for _ in range(COLD_LAYERS) for size in LAYER]
    keys = [torch.full((1, KV_HEADS, KEYS, DIM), 0.01, dtype=dtype) for _ in range(2 * COLD_LAYERS)]

    logits, targets = torch.full((SCORED, named(MODEL).vocab), 0.01, dtype=dtype), torch.zeros(SCORED, dtype=torch.long)

    def product(rows: int, layers: int) -> Task:
        states = {width: torch.full((rows, width), 0.01, dtype=dtype) for _, width in LAYER}
        return lambda kernel: [kernel.run(states[m.shape[1]], m, None) for m in matrices[: layers * len(LAYER)]]

    def attention(queries: int, caches: list[Tensor], causal: bool) -> Task:
        q = torch.full((1, HEADS, queries, DIM), 0.01, dtype=dtype)
        return lambda kernel: [
            kernel.run(q, k, v, None, causal) for k, v in zip(caches[::2], caches[1::2], strict=True)
        ]

    return {
        Classes.ONE: product(1, COLD_LAYERS),
        Classes.FEW: product(FEW_ROWS, COLD_LAYERS // 2),
        Classes.MANY: product(MANY_ROWS, 1),
        Classes.QUERY: attention(1, keys, False),
        Classes.QUERIES: attention(QUERIES, [x[:, :, :QUERIES] for x in keys[:2]], True),
        Classes.LIKELIHOOD: lambda kernel: kernel.run(logits, targets),
    }


def _int8_tasks() -> dict[str, Task]:
    """The same products with matrices of 8-bit integers."""
    from ragauge.engines.decoder import Linear
    from ragauge.engines.int8 import int8

    linears = [int8(Linear(torch.full(size, 0.01)), both=True) for _ in range(COLD_LAYERS) for size in LAYER]

    def product(rows: int, layers: int) -> Task:
        states = {width: torch.full((rows, width), 0.01) for _, width in LAYER}
        return lambda kernel: [kernel.run(one, states[one.size[1]]) for one in linears[: layers * len(LAYER)]]

    return {
        Classes.ONE: product(1, COLD_LAYERS),
        Classes.FEW: product(FEW_ROWS, COLD_LAYERS),
        Classes.MANY: product(MANY_ROWS, 1),
    }


def passes(dtype: torch.dtype, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Task]:
    """All layers for a few tokens after others: in one compiled call, or by operators with the kernels of a table.

    Operators take time to call, too, so that the fastest products alone do not tell.
    """
    from ragauge.engines import kernels
    from ragauge.engines.cache import KVCache
    from ragauge.engines.checkpoint import random_weights
    from ragauge.engines.decoder import Decoder, Part
    from ragauge.engines.layout import lay_out
    from ragauge.engines.protocol import Row, Span

    choices = [_choice_of_passes(dtype, table, name) for name in ("plain", COMPILED)]
    states, weights = (torch.float32, "int8") if dtype == torch.int8 else (dtype, "full")
    shape, cpu = few_layers(COLD_LAYERS), torch.device("cpu")
    with kernels.using(choices[1]):  # 8-bit matrices are kept for both
        decoder = Decoder(shape, random_weights(shape, states, cpu, weights=weights))
    cache = KVCache(shape, KEYS + FEW_ROWS, states, cpu)
    for _, part in cache.parts():
        part.fill_(0.01)

    def passing(tokens: int) -> Task:
        row = Row([1] * tokens, [float(KEYS + i) for i in range(tokens)], (Span(0, KEYS),))
        positions, x = torch.tensor(row.positions), torch.full((tokens, shape.d_model), 0.01, dtype=states)

        def read(compiled_: bool) -> Tensor:
            cache.length = KEYS
            with kernels.using(choices[compiled_]):
                return decoder.read(x, [Part(positions, cache, lay_out([row], cache))])

        return lambda kernel: kernel.run(read)

    return {Classes.STEP: passing(1), Classes.STEPS: passing(FEW_ROWS)}


def _choice_of_passes(dtype: torch.dtype, table: Mapping[str, Mapping[str, Any]], kernel: str) -> Choice:
    rows = {**table, **{what: {"kernel": kernel} for what in (Classes.STEP, Classes.STEPS)}}
    return Choice("measured", {str(dtype).removeprefix("torch."): rows})


def few_layers(count: int) -> Shape:
    """The first layers of SmolLM2-135M, and as large a part of its vocabulary."""
    whole = named(MODEL)
    layers = {name: getattr(whole, name)[:count] for name in ("heads", "kv_heads", "ffn")}
    return replace(whole, vocab=whole.vocab * count // whole.layers, **layers)


def table_path() -> Path:
    """The file that keeps the tables of this machine, torch's version and its present number of threads."""
    about = machine()
    kept_in = store.Store(store.home()).folder("kernels", f"{about['cpu']} {about['threads']} threads", about)
    return kept_in.with_suffix(".json")


def _read(path: Path) -> dict[str, Any]:
    """The tables that the file holds by data type; none where it is missing, damaged or another machine's."""
    try:
        found = json.loads(path.read_bytes())
        check(found["kernels"], str(path))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, UserError):
        return {}
    if found.get("machine") != machine():
        return {}
    try:
        return {dtype: table for dtype, table in found["kernels"].items() if not outdated(path, _load(table))}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def outdated(path: Path, load_share: float) -> bool:
    """Whether what a file holds was measured on a loaded machine and some time ago."""
    return load_share > LOADED and time.time() - path.stat().st_mtime > LOADED_S


def _load(table: Mapping[str, Any]) -> float:
    rows = [row for row in table.values() if isinstance(row, Mapping)]
    return max((float(row.get("load_share", 0.0)) for row in rows), default=0.0)
