"""Our decoder next to other engines on the same weights and token ids.

    python benchmarks/peers.py [--engines "ragauge float32,llama.cpp"] [--threads 2] [--trials 5] [--json]

Every engine has a process of its own, so that none waits in another's way with spinning threads,
and one that fails is left out with its reason. A trial is one prompt, which all engines answer in a
random order; all write as many tokens. Every trial has another prompt, so that none is answered
from a cache of prompts. The extra `peers` installs OpenVINO GenAI and llama.cpp (`xllamacpp`); vLLM
is used where it is installed.
"""

import argparse
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import MODEL, Option, finish, load_line, parse_options, times
from _engines import ENGINES, Ids, NotHereError, Setting
from ragauge.cost import machine
from ragauge.cost.machine import Load, competing_load, cpu_model
from ragauge.engines.tuning import weight_read
from ragauge.errors import UserError
from targets import Verdicts

OURS = "ragauge"
SMALL = {
    "context": 24,
    "prompt": 40,
    "new_tokens": 3,
    "side": 2,
    "side_context": 12,
    "side_new_tokens": 3,
    "trials": 1,
}
LONGEST_S = 900  # of one answer, or of loading


class FailedError(Exception):
    """An engine that answered with an error, or not at all."""


# ---- an engine in a process of its own


@dataclass
class Peer:
    """The end of a pipe to an engine's process."""

    name: str
    pipe: Any
    computes: str = ""

    def ask(self, call: str, *arguments: Any) -> Any:
        """Call a method of the engine.

        Raises:
            FailedError: with the engine's error, or where its process ended.
        """
        try:
            if call:
                self.pipe.send((call, arguments))
            if not self.pipe.poll(LONGEST_S):
                raise FailedError(f"no answer within {LONGEST_S} s")
            good, found = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise FailedError(f"its process ended ({type(error).__name__})") from None
        if not good:
            raise FailedError(found)
        return found


@contextmanager
def started(name: str, setting: Setting, verbose: bool) -> Iterator[Peer]:
    """The engine's process. Raises FailedError where the engine is not there."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, name, setting, verbose), daemon=True)
    process.start()
    there.close()
    peer = Peer(name, here)
    try:
        peer.computes = peer.ask("")
        yield peer
    finally:
        here.close()
        process.join(10)
        process.kill()


def _serve(pipe: Any, name: str, setting: Setting, verbose: bool) -> None:
    """An engine's process: one reply to every message until the pipe closes."""
    if not verbose:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
    engine = _replied(pipe, lambda: ENGINES[name](setting), lambda made: made.computes)
    while engine:
        try:
            call, arguments = pipe.recv()
        except EOFError:
            return
        _replied(pipe, lambda: getattr(engine, call)(*arguments), lambda found: found)  # noqa: B023


def _replied(pipe: Any, work: Callable[[], Any], encode: Callable[[Any], Any]) -> Any:
    """Send (True, what came of it) or (False, the reason); returns what came of it."""
    try:
        found = work()
    except NotHereError as error:
        pipe.send((False, str(error)))
    except Exception as error:
        pipe.send((False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
    else:
        pipe.send((True, encode(found)))
        return found


# ---- what is measured


@dataclass(frozen=True)
class Task:
    """Prompts of one length, and what their times are called."""

    title: str
    length: int
    new: int
    metrics: Mapping[str, Callable[[Any], float]]  # name -> of what a trial returned
    side: int = 0  # prompts read together; 0: one alone


def tasks(args: argparse.Namespace) -> list[Task]:
    steps = args.new_tokens
    side = args.side
    return [
        Task(
            f"{args.context} tokens read, {steps} decoded after them",
            args.context,
            steps + 1,
            {
                f"prefill_{args.context}_s": lambda found: found[0],
                "decode_ms": lambda found: 1e3 * (found[1] - found[0]) / steps,
            },
        ),
        Task(
            f"{args.prompt} tokens read",
            args.prompt,
            1,
            {f"prefill_{args.prompt}_s": lambda found: found[0]},
        ),
        Task(
            f"{side} prompts of {args.side_context} tokens, {args.side_new_tokens} written for each",
            args.side_context,
            args.side_new_tokens,
            {
                "one_by_one_question_s": lambda found: found[0] / side,
                "side_by_side_question_s": lambda found: found[1] / side,
            },
            side,
        ),
    ]


def measure(
    task: Task, peers: list[Peer], trials: int, draw: random.Random
) -> tuple[dict[str, Any], dict[str, str]]:
    """Time a task on every engine, after one untimed trial of each.

    Returns:
        {metric: {engine: [value of each trial]}}, {engine: why it failed}
    """
    values: dict[str, Any] = {metric: {} for metric in task.metrics}
    failed: dict[str, str] = {}
    for trial in range(trials + 1):
        prompts = [
            [draw.randrange(100, 259) for _ in range(task.length)] for _ in range(task.side or 1)
        ]
        for peer in draw.sample(peers, len(peers)):
            if peer.name in failed:
                continue
            try:
                found = _timed_request(peer, task, prompts)
            except FailedError as error:
                failed[peer.name] = str(error)
                continue
            for metric, of in task.metrics.items() if trial else ():
                values[metric].setdefault(peer.name, []).append(of(found))
    return values, failed


def _timed_request(peer: Peer, task: Task, prompts: list[Ids]) -> tuple[float, float]:
    if not task.side:
        return peer.ask("answer", prompts[0], task.new)
    together = peer.ask("answer_many", prompts, task.new)
    return sum(peer.ask("answer", ids, task.new)[1] for ids in prompts), together


def main() -> None:
    args = _options()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    setting = Setting(
        args.model, _gguf(args), args.threads, max(args.prompt, args.context) + 64, args.side
    )
    rates = machine.measure(threads=args.threads, allow_load=args.small, weight_read=weight_read)
    print(
        f"{args.model} on {cpu_model()}, {args.threads} threads, {args.trials} interleaved trials"
    )
    skipped: dict[str, str] = {}
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        peers = _all_started(stack, args, setting, skipped)
        load = Load()
        draw = random.Random(args.seed)
        for task in tasks(args):
            with competing_load() as meanwhile:
                values, failed = measure(task, peers, args.trials, draw)
            load += meanwhile
            found |= {
                metric: {name: times(of) | {"trials": of} for name, of in by.items()}
                for metric, by in values.items()
            }
            _print(task, found, failed)
        floors = _floors(peers, args, rates, draw)
    print(load_line(load))
    ratios = _ratios(found)
    verdicts = _judge(found, floors, args)
    computes = {peer.name: peer.computes for peer in peers}
    result = {
        "setting": {
            key: value
            for key, value in vars(args).items()
            if key not in ("json", "verbose", "small")
        },
        "computes": computes,
        "skipped": skipped,
        "load_share": load.share,
        "machine": rates,
        "times": found,
        "floors_ms": floors,
        "ratios": ratios,
    }
    finish(result, verdicts, args.json)


def _all_started(
    stack: ExitStack, args: argparse.Namespace, setting: Setting, skipped: dict[str, str]
) -> list[Peer]:
    peers = []
    for name in args.engines:
        try:
            peers.append(stack.enter_context(started(name, setting, args.verbose)))
            print(f"  {name}: {peers[-1].computes}")
        except FailedError as error:
            skipped[name] = str(error)
            print(f"  {name}: skipped: {error}")
    return peers


def _floors(
    peers: list[Peer], args: argparse.Namespace, rates: Mapping[str, Any], draw: random.Random
) -> dict[str, float]:
    """The roofline of a decoded token after the context, ms, of our engines."""
    ids = [draw.randrange(100, 259) for _ in range(args.context)]
    return {
        peer.name: 1e3 * peer.ask("floor", ids, args.new_tokens + 1, dict(rates))
        for peer in peers
        if peer.name.startswith(OURS)
    }


def _print(task: Task, found: Mapping[str, Any], failed: Mapping[str, str]) -> None:
    print(f"\n{task.title}")
    for metric in task.metrics:
        print(f"  {metric}")
        for name, of in sorted(found[metric].items(), key=lambda item: item[1]["least"]):
            print(
                f"    {name:28} {of['least']:9.4g}   median {of['median']:.4g} [{of['q1']:.4g}, {of['q3']:.4g}]"
            )
    for name, reason in failed.items():
        print(f"    {name:28} left out: {reason}")


def _ratios(found: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """metric -> ours -> peer -> our least time over the peer's."""
    return {
        metric: {
            ours: {peer: by[ours]["least"] / by[peer]["least"] for peer in by if peer != ours}
            for ours in by
            if ours.startswith(OURS)
        }
        for metric, by in found.items()
    }


def _judge(
    found: Mapping[str, Any], floors: Mapping[str, float], args: argparse.Namespace
) -> Verdicts:
    verdicts = Verdicts()
    print()
    prefill = f"prefill_{args.prompt}_s"

    def least(metric: str, engine: str) -> float:
        if engine not in found[metric]:
            raise NotHereError(f"no time of {engine}")
        return float(found[metric][engine]["least"])

    def plain(metric: str) -> float:
        return min(least(metric, f"{OURS} {dtype}") for dtype in ("float32", "bfloat16"))

    auto = f"{OURS} auto"
    int8 = f"{OURS} int8"
    values: dict[str, Callable[[], float]] = {
        "auto_decode": lambda: least("decode_ms", auto) / plain("decode_ms"),
        "auto_prefill": lambda: least(prefill, auto) / plain(prefill),
        "int8_decode_openvino": lambda: (
            least("decode_ms", int8) / least("decode_ms", "OpenVINO bf16")
        ),
        "int8_decode_llama_cpp": lambda: least("decode_ms", int8) / least("decode_ms", "llama.cpp"),
        "int4_decode_llama_cpp": lambda: (
            least("decode_ms", f"{OURS} int4") / least("decode_ms", "llama.cpp")
        ),
        "int8_decode_roofline": lambda: least("decode_ms", int8) / floors[int8],
        "int8_prefill_openvino": lambda: least(prefill, int8) / least(prefill, "OpenVINO bf16"),
        "batch8": lambda: (
            least("one_by_one_question_s", auto) / least("side_by_side_question_s", auto)
        ),
    }
    for name, value in values.items():
        try:
            verdicts.check(name, value())
        except NotHereError as reason:
            verdicts.skip(name, str(reason))
    return verdicts


def _gguf(args: argparse.Namespace) -> str | None:
    """The file that a converted model was made from."""
    from ragauge.assets.gguf_weights import FILE
    from ragauge.assets.resolver import resolve

    if args.gguf:
        return args.gguf
    link = Path(resolve(args.model), FILE)
    return str(link.resolve()) if link.exists() else None


def _options() -> argparse.Namespace:
    options: dict[str, Option] = {
        "model": MODEL,
        "gguf": (str, "the model's GGUF file; default: the one that it was converted from"),
        "engines": (list(ENGINES), "engines that are compared"),
        "threads": (2, "of every engine"),
        "trials": (5, "of each engine and task"),
        "context": (1000, "tokens in the cache while decoding"),
        "new_tokens": (20, "decoded in a trial"),
        "prompt": (3000, "tokens of the longer prompt"),
        "side": (8, "prompts read together"),
        "side_context": (128, "tokens of each of them"),
        "side_new_tokens": (32, "written for each of them"),
        "seed": (0, "of the prompts and of the order"),
        "small": (False, "the shortest prompts, one trial: does it run?"),
        "verbose": (False, "let the engines print"),
    }
    args = parse_options(__doc__, **options)
    if args.small:
        vars(args).update(SMALL)
    if unknown := set(args.engines) - set(ENGINES):
        raise UserError(
            f"--engines: unknown {', '.join(sorted(unknown))}; known: {', '.join(ENGINES)}"
        )
    return args


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"peers: {error}") from None
