"""The fastest kernels and the fastest data type of this machine: kernels are timed once, and the
times stored.

See docs/engine.md. Candidates take turns, and the least time of each counts: others' work on the
machine only ever adds to a time.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragauge.assets import store
from ragauge.cost.hardware import DTYPES
from ragauge.cost.machine import cpu_model
from ragauge.cost.shapes import named
from ragauge.engines.cache import KVCache
from ragauge.engines.checkpoint import random_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.kernels import choice, compiled, operations
from ragauge.engines.kernels.choice import (
    COMPILED,
    Choice,
    Operation,
    Table,
    dtype_name,
    fastest_kernel,
)
from ragauge.engines.kernels.operations import candidates
from ragauge.engines.layout import Part, lay_out
from ragauge.engines.spans import Row, Span
from ragauge.errors import unknown
from ragauge.io import progress
from ragauge.io.files import file_sha256, locked, write_file

AFFECTS_RESULTS = False

KERNELS_VARIABLE = "RAGAUGE_KERNELS"
DTYPE_VARIABLE = "RAGAUGE_DTYPE"

MODEL = "smollm2-135m-instruct"  # a decoder of its sizes is what is timed
KEYS = 1000  # that a few tokens attend to
READ_WIDTH = 1024  # of a matrix whose reading is timed
COLD_LAYERS = 8  # matrices that one token passes: more than a cache near a core holds
FEW_ROWS = 8
MANY_ROWS = 256
QUERIES = 512

# compiled where possible, which was the fastest on every machine measured
UNTIMED = (Operation.ROWWISE, Operation.LIKELIHOOD)
ROUNDS = 6
MIN_S = 0.3
MAX_S = 1.5  # of each operation: rounds, more if they are short and fewer if they are long

DTYPE_CANDIDATES = ("float32", "bfloat16")
PROMPT = 1000
ANSWER = 50  # tokens that are read and written with the type that `dtype: auto` chooses

Run = Callable[[], object]


def choose_kernels(dtype: torch.dtype, weights: str = "full") -> Choice:
    """The kernels for a data type of activations, and `weights` as in `cost.hardware.WEIGHTS`, on
    this machine with torch's present number of threads. The environment variable RAGAUGE_KERNELS is
    default (torch's own) or measured (also if it is not set).

    Raises:
        UserError: another value.
    """
    setting = os.environ.get(KERNELS_VARIABLE) or "measured"
    if setting == "default":
        return choice.DEFAULT
    if setting != "measured":
        raise unknown("kernels", setting, ("measured", "default"), KERNELS_VARIABLE)
    dtypes = [dtype, torch.int8] if weights == "int8" else [dtype]
    return Choice("measured", load_or_measure_tables(dtypes))


def load_or_measure_tables(dtypes: Sequence[torch.dtype], again: bool = False) -> Table:
    """The kernels' tables of these data types, by name; what this machine's file lacks is measured
    and added, or all of them `again`.
    """
    names = [*map(dtype_name, dtypes)]
    tables = {} if again else stored_tables()
    if not set(names) <= set(tables):
        path = table_path()
        with locked(path):  # of jobs that start together one measures, the others read
            tables = stored_tables()
            for name, dtype in zip(names, dtypes, strict=True):
                if again or name not in tables:
                    tables[name] = measure(dtype)
            content = {"machine": machine(), "kernels": tables}
            write_file(path, (json.dumps(content, indent=1) + "\n").encode())
    return {name: tables[name] for name in names}


def has_tables(dtypes: Iterable[str]) -> bool:
    """Whether this machine's file has the kernels' tables of these data types."""
    return set(dtypes) <= set(stored_tables())


@torch.inference_mode()
def measure(dtype: torch.dtype) -> dict[str, Any]:
    """Operation -> the fastest kernel, and each candidate's least seconds; of `UNTIMED` the kernel
    alone.
    """
    table: dict[str, Any] = {}
    if dtype != torch.int8:
        table |= {name: {"kernel": candidates(name, dtype)[-1]} for name in UNTIMED}
    for operation, run in operation_runs(dtype).items():
        kernels = candidates(operation, dtype)
        choices = {name: choice_of(name, operation, dtype, table) for name in kernels}
        table[operation] = _measured(run, choices)
    return table


def choice_of(kernel: str, operation: str, dtype: torch.dtype, table: Mapping[str, Any]) -> Choice:
    """One kernel for an operation, those of a table for the others."""
    return Choice("measured", {dtype_name(dtype): {**table, operation: {"kernel": kernel}}})


def _measured(run: Run, choices: Mapping[str, Choice]) -> dict[str, Any]:
    """The fastest of the kernels, and their least seconds in rounds in which they take turns."""

    def timed(kernels: Choice) -> float:
        with choice.using(kernels):
            begin = time.perf_counter()
            run()
            return time.perf_counter() - begin

    seconds = dict.fromkeys(choices, math.inf)
    for kernels in choices.values():
        timed(kernels)  # warm up
    started = time.perf_counter()
    rounds = 0
    spent = 0.0
    while rounds < 2 or spent < MIN_S or (rounds < ROUNDS and spent < MAX_S):
        for name, kernels in choices.items():
            seconds[name] = min(seconds[name], timed(kernels))
        rounds += 1
        spent = time.perf_counter() - started
    return {"kernel": fastest_kernel(seconds), "seconds": seconds}


def operation_runs(dtype: torch.dtype) -> dict[str, Run]:
    """Operation -> one run, which takes some milliseconds of a decoder of SmolLM2's sizes.

    All layers for a few tokens are last: by operators they take the kernels chosen before.
    """
    is_int8 = dtype == torch.int8
    states, weights = (torch.float32, "int8") if is_int8 else (dtype, "full")
    whole = named(MODEL)
    cpu = torch.device("cpu")
    first = {name: getattr(whole, name)[:COLD_LAYERS] for name in ("heads", "kv_heads", "ffn")}
    shape = replace(whole, vocab=whole.vocab * COLD_LAYERS // whole.layers, **first)
    # so that 8-bit matrices are stored for both
    with choice.using(choice_of(COMPILED, Operation.ONE_TOKEN, dtype, {})):
        decoder = Decoder(shape, random_weights(shape, states, cpu, weights=weights))
    heads = shape.heads[0]
    kv_heads = shape.kv_heads[0]
    dim = shape.head_dim
    full = partial(torch.full, fill_value=0.01, dtype=states)

    def product(rows: int, layers: int) -> Run:
        wide = full((rows, shape.d_model))
        attended = full((rows, heads * dim))
        inner = full((rows, shape.ffn[0]))

        def multiply() -> None:
            for layer in decoder.weights.layers[:layers]:
                layer.qkv(wide)
                layer.out(attended)
                layer.up(wide)
                layer.down(inner)

        return multiply

    cache = KVCache(shape, KEYS + FEW_ROWS, states, cpu)
    for _, tensor in cache.tensors():
        tensor.fill_(0.01)

    def reading(tokens: int) -> Run:
        row = Row([1] * tokens, [float(KEYS + i) for i in range(tokens)], (Span(0, KEYS),))
        positions = torch.tensor(row.positions)
        x = full((tokens, shape.d_model))

        def read() -> Tensor:
            cache.length = KEYS
            return decoder.read(x, [Part(positions, cache, lay_out([row], cache))])

        return read

    runs: dict[str, Run] = {
        Operation.ONE_ROW: product(1, COLD_LAYERS),
        Operation.FEW_ROWS: product(FEW_ROWS, COLD_LAYERS // 2),
        Operation.MANY_ROWS: product(MANY_ROWS, 1),
    }
    if not is_int8:
        q, k, v = (full((1, count, QUERIES, dim)) for count in (heads, kv_heads, kv_heads))
        runs[Operation.ATTENTION] = lambda: operations.attend(q, k, v, None, causal=True)
    return runs | {Operation.ONE_TOKEN: reading(1), Operation.FEW_TOKENS: reading(FEW_ROWS)}


def fastest_dtype(
    device: str = "cpu", threads: int | None = None, allowed: Sequence[str] = DTYPE_CANDIDATES
) -> str:
    """The fastest of the allowed data types on so many threads; one line on stderr says which and
    why.

    Raises:
        UserError: the environment variable RAGAUGE_DTYPE names no data type.
    """
    stated = os.environ.get(DTYPE_VARIABLE)
    if stated and stated not in DTYPES:
        raise unknown("dtype", stated, DTYPES, DTYPE_VARIABLE)
    if len(allowed) == 1:
        return allowed[0]
    if stated:
        return stated
    if device != "cpu":
        return (
            "bfloat16"
            if torch.cuda.is_available() and torch.cuda.is_bf16_supported()
            else "float32"
        )
    seconds = dtype_speeds(threads)
    answer_s = {
        dtype: seconds[dtype]["prompt_s"] + ANSWER * seconds[dtype]["token_s"] for dtype in allowed
    }
    chosen = min(allowed, key=answer_s.__getitem__)
    times = ", ".join(f"{dtype} {1e3 * s:.1f} ms" for dtype, s in answer_s.items())
    _say_once(
        f"ragauge: dtype auto: {chosen} (a layer of {MODEL} reads {PROMPT} tokens and writes {ANSWER} in: {times})"
    )
    return chosen


_say_once = cache(progress.line)


def dtype_speeds(threads: int | None = None, again: bool = False) -> dict[str, dict[str, float]]:
    """dtype -> a layer's `prompt_s`, and `token_s` of a token after it, on so many threads (None:
    torch's choice).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        dtypes = [getattr(torch, name) for name in DTYPE_CANDIDATES]
        parts = (Operation.MANY_ROWS, Operation.ATTENTION, Operation.ONE_TOKEN)
        speeds = {}
        for name, table in load_or_measure_tables(dtypes, again).items():
            dtype = getattr(torch, name)
            kernels = choose_kernels(dtype)
            product, attention, layers = (
                table[part]["seconds"][kernels.kernel(dtype, part)] for part in parts
            )
            # Norms and activations take little in comparison.
            prompt_s = product * PROMPT / MANY_ROWS + attention * (PROMPT / QUERIES) ** 2
            speeds[name] = {"prompt_s": prompt_s, "token_s": layers / COLD_LAYERS}
        return speeds
    finally:
        torch.set_num_threads(before)


def weight_read(size: int) -> Run | None:
    """One token's product with an 8-bit matrix of so many bytes, read as decoding reads weights;
    None: not compiled.
    """
    if compiled.library() is None:
        return None
    weight = torch.ones(size // READ_WIDTH, READ_WIDTH, dtype=torch.int8)
    matrix = compiled.Matrix.of(weight, scale=torch.ones(len(weight)))
    assert matrix is not None
    return partial(compiled.multiply, matrix, torch.ones(1, READ_WIDTH))


def machine() -> dict[str, Any]:
    """The facts that a file is valid for: a machine with other values has another file."""
    return {
        "cpu": cpu_model(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "code": file_sha256(Path(operations.__file__))[:12],
        "compiled": compiled.source_hash()[:12] if compiled.compiler() else None,
    }


def table_path() -> Path:
    """The file of this machine, torch's version and its present number of threads."""
    valid_for = machine()
    name = f"{valid_for['cpu']} {valid_for['threads']} threads"
    return store.Store(store.home()).folder("kernels", name, valid_for).with_suffix(".json")


def stored_tables() -> dict[str, Any]:
    """The tables in this machine's file; none where it cannot be read."""
    try:
        tables: dict[str, Any] = json.loads(table_path().read_bytes())["kernels"]
    except (OSError, ValueError):
        return {}
    return tables
