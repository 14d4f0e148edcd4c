"""What reuse of keys and values saves: each method's first token over full prefill and its work.

    python benchmarks/reuse.py [--model smollm2-135m-instruct] [--dtype bfloat16] [--threads 2] [--trials 5]
        [--sizes 20x150,10x1024] [--methods epic,cache_blend] [--json]

Random tokens on random weights of the model's shape: a preamble of 39, documents of one length, a
question of 11, a task of 13, one token written. What is prepared of documents lies in memory. The
methods are interleaved, ratios are of least times. A method's work is its online
multiply-accumulates (cost.flop) over full prefill's; moving and choosing tokens count none.
"Choosing" is what an answer takes beyond its traced calls.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from _common import THREADS, finish, interleaved, load_line, parse_options, times
from ragauge.cost import shapes, tokens
from ragauge.cost.flop import trace_macs
from ragauge.cost.machine import cpu_model
from ragauge.cost.trace import elapsed, online
from ragauge.engines.lm import LM
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.methods.base.making import make
from ragauge.methods.base.method import Method
from ragauge.methods.prompts import Prompt
from targets import Verdicts

FULL = "naive"
METHODS: dict[str, dict[str, Any]] = {
    FULL: {},
    "prompt_cache": {},
    "parallel_windows": {},
    "ape": {},
    "naive_reuse": {},
    "epic": {"tokens": 16},
    "cache_blend": {"recompute": 0.16},
    "prophet_kv": {"recompute": 0.2},
    "parallel_experts": {},
    "superposition": {},
}
CHOOSING = ("cache_blend", "prophet_kv")
SPEEDUPS = {"cache_blend": "cache_blend_speedup", "epic": "epic_speedup"}
LIMITS = Limits(max_new_tokens=1, ignore_stop=True)


class Size(NamedTuple):
    documents: int
    tokens: int  # of each

    @classmethod
    def of(cls, text: str) -> Size:
        return cls(*map(int, text.split("x")))

    def __str__(self) -> str:
        return f"{self.documents}x{self.tokens}"


def main() -> None:
    args = parse_options(
        __doc__,
        model=("smollm2-135m-instruct", "a model whose shape is known"),
        dtype=("bfloat16", "of the decoder's numbers"),
        threads=THREADS,
        trials=(5, "rounds"),
        sizes=(["20x150", "10x1024"], "documents x tokens of each"),
        methods=(list(METHODS), "methods that are timed"),
    )
    names = [FULL, *(name for name in args.methods if name != FULL)]
    verdicts = Verdicts()
    results = {}
    print(
        f"{args.model} {args.dtype} on {cpu_model()}, {args.threads or 'all'} threads, {args.trials} trials"
    )
    for size in map(Size.of, args.sizes):
        lm, prompt = _material(args, size)
        results[str(size)] = found = _measured(lm, prompt, names, args.trials)
        _report(size, found)
        _judge(verdicts, size, found)
    finish({"results": results}, verdicts, args.json)


def _material(args: argparse.Namespace, size: Size) -> tuple[LM, Prompt]:
    counts = tokens.TokenCounts(39, (size.tokens,) * size.documents, 11, 13)
    shape = shapes.with_context(shapes.named(args.model), counts.total + 64)
    lm = random_lm(shape, dtype=args.dtype, threads=args.threads)
    return lm, Prompt(**tokens.random_segments(counts, shape.vocab))


def _measured(lm: LM, prompt: Prompt, names: list[str], trials: int) -> dict[str, dict[str, Any]]:
    """By method: the seconds to the first token, the work, and where its time goes."""
    methods: dict[str, Method] = {name: make(name, **METHODS[name]) for name in names}
    parts: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in names}
    states = {}
    traces = {}
    for name, method in methods.items():
        with lm.tracing() as trace:
            states[name] = method.prepare(lm, prompt)
        parts[name]["prepared"].append(elapsed(trace))

    def ask(name: str) -> None:
        with lm.tracing() as trace:
            started = time.perf_counter()
            methods[name].answer(lm, states[name], prompt, LIMITS)
            assert lm.first_token_at is not None
            first = lm.first_token_at - started
        traces[name] = trace = online(trace)
        parts[name]["first_token"].append(first)
        parts[name]["move"].append(elapsed(call for call in trace if call.stage == "move"))
        parts[name]["untraced"].append(max(0.0, first - elapsed(trace)))

    tasks: dict[str, Callable[[], object]] = {name: partial(ask, name) for name in names}
    _, load = interleaved(tasks, trials)
    print(load_line(load))
    macs = {name: trace_macs(trace, lm.shape) for name, trace in traces.items()}
    return {
        name: {
            "first_token_s": times(parts[name]["first_token"][1:]),
            "work": macs[name] / macs[FULL],
            **{f"{part}_s": min(parts[name][part]) for part in ("prepared", "move", "untraced")},
        }
        for name in names
    }


def _report(size: Size, found: dict[str, dict[str, Any]]) -> None:
    full = found[FULL]["first_token_s"]["least"]
    print(f"\n{size.documents} documents of {size.tokens} tokens: full prefill {full:.3f} s")
    for name, one in found.items():
        first = one["first_token_s"]["least"]
        print(
            f"  {name:17} {first:8.4f} s, {full / first:7.1f} times sooner; {first / full:.4f} of full prefill for "
            f"{one['work']:.4f} of its work: {first / full / one['work']:.2f}; move {one['move_s']:.4f} s"
        )


def _judge(verdicts: Verdicts, size: Size, found: dict[str, dict[str, Any]]) -> None:
    full = found[FULL]["first_token_s"]["least"]
    for name, one in found.items():
        first = one["first_token_s"]["least"]
        if name != FULL:
            verdicts.check("reuse_work", first / full / one["work"], of=f"{name} {size}")
        if name in CHOOSING:
            verdicts.check("reuse_choosing", one["untraced_s"] / full, of=f"{name} {size}")
        if name in SPEEDUPS and size.tokens >= 1024:
            verdicts.check(SPEEDUPS[name], full / first, of=str(size))
    if "naive_reuse" in found:
        moved = found["naive_reuse"]
        verdicts.check("reuse_move", moved["move_s"] / moved["prepared_s"], of=str(size))


if __name__ == "__main__":
    main()
