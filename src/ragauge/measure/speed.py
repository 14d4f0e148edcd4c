"""Seconds of model calls on a machine: measured here in under a minute, or lower bounds from a
GPU's data sheet.

For a measurement, a decoder of the model's own shape with random weights reads and writes with the
engine's kernels; nothing is fetched. Seconds of a multiply-accumulate depend on how many tokens
share a pass, and hardly on anything else of a call, so a call of any length is priced between the
passes of the nearest measured sizes.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from ragauge.cost.flop import call_macs, layer_weights, output_weights
from ragauge.cost.hardware import Precision
from ragauge.cost.machine import MAX_LOAD, competing_load
from ragauge.cost.roofline import A100, floor_seconds
from ragauge.cost.shape import Shape
from ragauge.cost.shapes import with_context
from ragauge.cost.trace import Call
from ragauge.pipelines.retrieval.sizes import CHUNKS_PER_S

if TYPE_CHECKING:
    from ragauge.pipelines.database.embed import TextEncoder

PASS_TOKENS = (16, 128, 512)  # measured sizes of a pass
DECODE_STEPS = 4
MAX_PASS_S = 3.0
REPEATS = 3  # of each size: no further repeat after so many seconds
MAX_DECODER_S = 12.0  # no larger size is begun after so many, where the machine is slow or busy
# of the decoder that is measured: of a larger model, as many of its layers
MAX_PARAMETERS = 50_000_000
TEXTS = 16
WORDS = 90  # encoded
# prints the seconds of the imports that answering needs
START = "import time; began = time.perf_counter(); import ragauge.measure.runner; print(time.perf_counter() - began)"


@dataclass(frozen=True)
class Span:
    """Seconds: the least, the likely and the most that are expected."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Span:
        """Minimum, median and maximum."""
        return cls(min(values), statistics.median(values), max(values))

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, factor: float) -> Span:
        return self.scaled(factor, factor, factor)

    def scaled(self, low: float, likely: float, high: float) -> Span:
        """Each bound times a factor of its own."""
        return Span(self.low * low, self.likely * likely, self.high * high)


@dataclass(frozen=True)
class MeasuredRates:
    """The speed of a decoder with a number of threads, at the precision that was measured."""

    threads: int
    s_per_mac: Mapping[int, Span]  # by the new tokens of a pass, rising

    def seconds(self, call: Call, shape: Shape, precision: Precision) -> Span:
        """Seconds of a call. Between the measured sizes, over the logarithm of tokens; beyond them,
        as the nearest.
        """
        at = math.log(max(1, sum(call.lengths)))
        sizes = [math.log(tokens) for tokens in self.s_per_mac]
        spans = [asdict(span) for span in self.s_per_mac.values()]
        each = {
            key: float(np.interp(at, sizes, [span[key] for span in spans]))
            for key in ("low", "likely", "high")
        }
        return Span(**each) * call_macs(call, shape)


@dataclass(frozen=True)
class RooflineRates:
    """Lower bounds from the peak rates of a machine (`cost.roofline`)."""

    machine: Mapping[str, Any]

    def seconds(self, call: Call, shape: Shape, precision: Precision) -> Span:
        return Span.of([floor_seconds(call, shape, precision, self.machine)])


Rates = MeasuredRates | RooflineRates


@dataclass(frozen=True)
class Machine:
    name: str
    cores: int
    one: Rates = field(repr=False)  # with one thread, as jobs run
    # with a thread per core, as answers are timed; on a busy machine with one
    all: Rates = field(repr=False)
    is_measured: bool = True  # False: rates of a data sheet
    start_s: float = 0.0  # of a process that imports what answering needs
    process_bytes: int = 0  # that it then holds
    encode_s: float = 1 / CHUNKS_PER_S  # of a passage, on one core
    load_share: float = 0.0  # part of the machine that other processes took
    measuring_s: float = 0.0


DATA_SHEET = Machine(
    f"{A100['name']} (data sheet)", 1, RooflineRates(A100), RooflineRates(A100), is_measured=False
)


def measure(
    shape: Shape,
    precision: Precision,
    device: str = "cpu",
    encoder: str | None = None,
    cores: int | None = None,
) -> Machine:
    """Measure so many `cores` (None: all) for a model of that shape, and encoding by an `encoder`
    that is here.
    """
    import torch

    began = time.perf_counter()
    cores = cores or psutil.cpu_count() or 1
    threads = torch.get_num_threads()
    smaller = _with_fewer_layers(shape)
    encode_s = 1 / CHUNKS_PER_S
    try:
        torch.set_num_threads(1)
        with (
            competing_load() as load,
            subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE) as start,
        ):
            if encoder:  # loaded beside a process that starts, as jobs start beside each other
                from ragauge.pipelines.database.embed import EncoderChoice

                model = EncoderChoice(encoder, "torch").load()
            start_s = float(start.communicate()[0])
        # On a busy machine threads wait for each other, up to a hundred times as long as they
        # compute.
        alone = load.share <= MAX_LOAD
        if encoder:
            encode_s = _encoding_s(model)
        one = _decoder_rates(smaller, 1, precision, device)
        all_ = _decoder_rates(smaller, cores, precision, device) if cores > 1 and alone else one
    finally:
        torch.set_num_threads(threads)
    return Machine(
        f"this machine ({precision})",
        cores,
        one,
        all_,
        start_s=start_s,
        process_bytes=psutil.Process().memory_info().rss,
        encode_s=encode_s,
        load_share=load.share,
        measuring_s=time.perf_counter() - began,
    )


def _encoding_s(model: TextEncoder) -> float:
    """Seconds of encoding a passage."""
    texts = [" ".join(["retrieval"] * WORDS) + f" {number}" for number in range(TEXTS)]
    started = time.perf_counter()
    model.encode(texts)
    return (time.perf_counter() - started) / len(texts)


def described(machine: Machine, shape: Shape | None, precision: Precision) -> str:
    """The speed of the machine in words, for a model of that shape."""
    if shape is None or not machine.is_measured:
        return f"lower bounds of the time on {machine.name}"

    speeds = []
    for rates in (machine.one, machine.all):
        read = rates.seconds(Call("read", (512,), (0,)), shape, precision).likely
        written = rates.seconds(Call("decode", (1,), (256,), logits=(1,)), shape, precision).likely
        speeds.append(f"reads {512 / read:,.0f} tokens/s, writes {1 / written:,.1f}")
    text = f"{machine.name}, measured in {machine.measuring_s:.0f} s: one thread {speeds[0]}"
    if machine.all is not machine.one:
        return f"{text}; {machine.cores} threads: {speeds[1]}"
    if machine.cores > 1:
        text += f"; other processes use {machine.load_share:.0%} of the machine, so times are those of one thread"
    return text


def _with_fewer_layers(shape: Shape) -> Shape:
    """The shape with as many layers as `MAX_PARAMETERS` allow, one at least, and room for what is
    read.
    """
    each = layer_weights(shape) // shape.layers
    layers = max(1, min(shape.layers, (MAX_PARAMETERS - output_weights(shape)) // each))
    fewer = {name: getattr(shape, name)[:layers] for name in ("heads", "kv_heads", "ffn")}
    return replace(with_context(shape, max(PASS_TOKENS) + DECODE_STEPS + 1), **fewer)


def _decoder_rates(shape: Shape, threads: int, precision: Precision, device: str) -> MeasuredRates:
    """The rates of a decoder of random weights; the first pass of each size, which chooses kernels,
    is left out.
    """
    from ragauge.engines.loading import random_lm
    from ragauge.engines.protocol import Limits

    engine = random_lm(shape, threads=threads, device=device, **asdict(precision))
    measured: dict[int, list[float]] = {1: []}
    started = time.perf_counter()
    for tokens in PASS_TOKENS:
        began = time.perf_counter()
        draw = random.Random(tokens)
        if tokens > PASS_TOKENS[0] and began - started > MAX_DECODER_S:
            break
        ids = [draw.randrange(shape.vocab) for _ in range(tokens)]
        for repeat in range(REPEATS + 1):
            if repeat > 1 and time.perf_counter() - began > MAX_PASS_S:
                break
            with engine.tracing() as trace:
                engine.respond(ids, Limits(DECODE_STEPS, ignore_stop=True))
            for call in trace if repeat else ():
                size = 1 if call.stage == "decode" else tokens
                measured.setdefault(size, []).append((call.seconds or 0.0) / call_macs(call, shape))
    return MeasuredRates(threads, {tokens: Span.of(values) for tokens, values in measured.items()})
