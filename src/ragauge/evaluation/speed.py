"""How fast this machine is, now, at what experiments do: measured in well under a minute, other work on it included.

A decoder of the model's own shape with random weights reads and writes under the engine's kernels; nothing is fetched.
Seconds of a multiply-accumulate depend on how many tokens share a pass, and hardly on anything else of a call: a call
of any length is priced by the passes of the nearest sizes.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil

from ragauge.cost.flop import call_macs, layer_weights, output_weights
from ragauge.cost.machine import MAX_LOAD, competing_load
from ragauge.cost.shape import Shape
from ragauge.cost.shapes import with_context
from ragauge.cost.trace import Call

if TYPE_CHECKING:
    from ragauge.engines import LM

TOKENS = (16, 128, 512)  # of a pass
STEPS = 8  # tokens written
SIZE_S, REPEATS = 3.0, 3  # of each size: no further repeat after so many seconds
MOST_S = 12.0  # of a decoder: no larger size is begun after so many, where the machine is slow or busy
PARAMETERS = 200_000_000  # of the decoder that is measured: of a larger model, as many of its layers
LOOK_S = 1.0  # at what else the machine does
TEXTS, WORDS = 16, 90  # encoded
VECTORS, WIDTH = 2560, 384  # indexed


@dataclass(frozen=True)
class Expected:
    """Seconds: the least, the likely and the most that are expected."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    def __add__(self, other: Expected) -> Expected:
        return Expected(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, factor: float) -> Expected:
        return Expected(self.low * factor, self.likely * factor, self.high * factor)

    def within(self, low: float, likely: float, high: float) -> Expected:
        """Each bound by a factor of its own."""
        return Expected(self.low * low, self.likely * likely, self.high * high)


@dataclass(frozen=True)
class Rate:
    """Seconds of a multiply-accumulate where so many new tokens share a pass."""

    tokens: int
    s_per_mac: Expected


@dataclass(frozen=True)
class Speeds:
    """A decoder's speed with a number of threads."""

    threads: int
    dtype: str
    rates: tuple[Rate, ...]  # by tokens, rising

    def seconds(self, call: Call, shape: Shape, share: float = 1.0) -> Expected:
        """A call of a model of that shape; `share` of its steps."""
        tokens = max(1, sum(call.lengths))
        return self._s_per_mac(tokens) * (call_macs(call, shape) * share)

    def told(self, shape: Shape) -> str:
        """In words, of a model of that shape."""
        read, written = self.seconds(Call("read", (512,), (0,)), shape), self.seconds(_step(256), shape)
        return f"reads {512 / read.likely:,.0f} tokens/s, writes {1 / written.likely:,.1f}"

    def _s_per_mac(self, tokens: int) -> Expected:
        """Between the sizes that were measured, over the logarithm of tokens; beyond them, as the nearest."""
        below = max((r for r in self.rates if r.tokens <= tokens), key=lambda r: r.tokens, default=self.rates[0])
        above = min((r for r in self.rates if r.tokens >= tokens), key=lambda r: r.tokens, default=self.rates[-1])
        if below.tokens == above.tokens:
            return below.s_per_mac
        part = math.log(tokens / below.tokens) / math.log(above.tokens / below.tokens)
        return below.s_per_mac * (1 - part) + above.s_per_mac * part


@dataclass(frozen=True)
class Machine:
    """What was measured here."""

    cores: int
    one: Speeds  # with one thread, as jobs answer
    all: Speeds  # with a thread a core, as answers are timed; where other work kept the machine busy, with one
    start_s: float  # of a process that imports what answering needs
    process_bytes: int  # that it then holds
    encode_s: float | None  # of a passage; None: nothing encodes
    index_s: float | None  # of a vector; None: nothing is indexed
    load_share: float  # part of the machine that other work took
    seconds: float  # that measuring took

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def measure(
    shape: Shape, *, precision: dict[str, Any], device: str = "cpu", encoder: str | None = None, index: bool = False
) -> Machine:
    """This machine's speeds for a model of that shape.

    Args:
        precision: `dtype`, `weights` and `kv` of the model.
        encoder: a text encoder that is on this machine; None: encoding is not measured.
        index: whether building an index is measured.

    Raises:
        UserError: the device is not there.
    """
    began, cores = time.perf_counter(), psutil.cpu_count() or 1
    start_s, smaller = _start_s(), _cut(shape)
    with competing_load() as load:
        time.sleep(LOOK_S)
    alone = load.share <= MAX_LOAD  # else threads wait for each other, up to a hundred times as long as they compute
    with _threads():
        one = _decoder(smaller, 1, precision, device)
        all_ = _decoder(smaller, cores, precision, device) if cores > 1 and alone else one
        encode_s = _encode_s(encoder) if encoder else None
    index_s = _index_s() if index else None
    held = psutil.Process().memory_info().rss
    return Machine(cores, one, all_, start_s, held, encode_s, index_s, load.share, time.perf_counter() - began)


def _start_s() -> float:
    """Seconds of a process that imports what answering does."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ragauge.evaluation.runner"], check=True, capture_output=True)
    return time.perf_counter() - began


def _cut(shape: Shape) -> Shape:
    """The shape with as many layers as `PARAMETERS` allow, one at least, and room for what is read."""
    each = layer_weights(shape) // shape.layers
    layers = max(1, min(shape.layers, (PARAMETERS - output_weights(shape)) // each))
    kept = {name: getattr(shape, name)[:layers] for name in ("heads", "kv_heads", "ffn")}
    return replace(with_context(shape, max(TOKENS) + STEPS + 1), **kept)


def _step(past: int) -> Call:
    """A token that is written after so many."""
    return Call("decode", (1,), (past,), logits=(1,))


@contextmanager
def _threads() -> Iterator[None]:
    """Leave torch's threads as they were."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _decoder(shape: Shape, threads: int, precision: dict[str, Any], device: str) -> Speeds:
    """The rates of a decoder of random weights, the first pass of each size left out, which chooses and compiles."""
    from ragauge.engines import random_lm

    engine = random_lm(shape, threads=threads, device=device, **precision)
    read = {tokens: list[float]() for tokens in TOKENS}
    written: list[float] = []
    started = time.perf_counter()
    for tokens in TOKENS:
        began = time.perf_counter()
        if tokens > TOKENS[0] and began - started > MOST_S:
            break
        for number in range(REPEATS + 1):
            if number > 1 and time.perf_counter() - began > SIZE_S:
                break
            calls = _answered(engine, tokens)
            if number:
                read[tokens] += [_s_per_mac(call, shape) for call in calls if call.stage != "decode"]
                written += [_s_per_mac(call, shape) for call in calls if call.stage == "decode"]
    rates = [Rate(1, _span(written)), *(Rate(tokens, _span(found)) for tokens, found in read.items() if found)]
    return Speeds(threads, str(precision["dtype"]), tuple(rates))


def _answered(engine: LM, tokens: int) -> list[Call]:
    """The calls of one response to so many random tokens."""
    from ragauge.engines import Limits

    draw = random.Random(tokens)
    ids = [draw.randrange(engine.shape.vocab) for _ in range(tokens)]
    with engine.tracing() as trace:
        engine.respond(ids, Limits(STEPS, ignore_stop=True))
    return list(trace)


def _s_per_mac(call: Call, shape: Shape) -> float:
    return (call.seconds or 0.0) / call_macs(call, shape)


def _span(values: Sequence[float]) -> Expected:
    return Expected(min(values), statistics.median(values), max(values))


def _encode_s(encoder: str) -> float:
    """Seconds of a passage, with one thread."""
    import torch

    from ragauge.retrieval.embed import EncoderChoice

    torch.set_num_threads(1)
    model = EncoderChoice(encoder, "torch").load()
    texts = [" ".join(["retrieval"] * WORDS) + f" {number}" for number in range(TEXTS)]
    began = time.perf_counter()
    model.encode(texts)
    return (time.perf_counter() - began) / len(texts)


def _index_s() -> float:
    """Seconds of a vector, with one thread: an IVF-PQ index, as databases have it, over random ones."""
    import faiss
    import numpy as np

    vectors = np.random.default_rng(0).standard_normal((VECTORS, WIDTH), dtype=np.float32)
    index = faiss.index_factory(WIDTH, "IVF64,PQ48x6")
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    began = time.perf_counter()
    index.train(vectors)
    index.add(vectors)
    took = time.perf_counter() - began
    faiss.omp_set_num_threads(threads)
    return took / VECTORS
