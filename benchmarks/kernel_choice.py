"""Kernels chosen by measurement against torch's own, and `dtype: auto` against float32 and
bfloat16.

    python benchmarks/kernel_choice.py [--model smollm2-135m-instruct] [--threads 2] [--trials 9]
    [--json]

Decoding after a context and reading a prompt, in float32 and bfloat16; every round runs each of the
four once, in a random order. Ratios are of least times.
"""

import argparse
from collections.abc import Mapping

import torch

from _common import Task, finish, interleaved, load_line, times
from ragauge.cost.machine import cpu_model
from ragauge.engines import tuning
from ragauge.engines.kernels.choice import Choice, use
from ragauge.engines.lm import LM
from ragauge.engines.loading import DTYPES, load_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row
from targets import Verdicts

CANDIDATES = tuning.DTYPE_CANDIDATES
SETTINGS = ("default", "measured")


def main() -> None:
    args = _arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    auto = tuning.fastest_dtype("cpu", args.threads)
    choices = {
        dtype: {s: tuning.choose_kernels(DTYPES[dtype], s) for s in SETTINGS}
        for dtype in CANDIDATES
    }
    print(
        f"{args.model} on {cpu_model()}, {torch.get_num_threads()} threads, {args.trials} interleaved trials"
    )
    for dtype in CANDIDATES:
        print(f"{dtype}: {choices[dtype]['measured'].named().get(dtype) or 'torch itself'}")
    lms = {dtype: load_lm(args.model, dtype=dtype) for dtype in CANDIDATES}
    verdicts = Verdicts()
    result = {"auto": auto}
    for name, target, scale, make in (
        (
            f"decode after {args.context} tokens, ms a token",
            "auto_decode",
            1e3 / args.new_tokens,
            _decoding,
        ),
        (f"prefill of {args.prompt} tokens, s", "auto_prefill", 1.0, _prefill),
    ):
        tasks = {
            f"{dtype} {setting}": _using(choices[dtype][setting], make(lms[dtype], args))
            for dtype in CANDIDATES
            for setting in SETTINGS
        }
        found = _report(name, tasks, args.trials, scale)
        result[target] = found
        least = {
            dtype: min(found[f"{dtype} {setting}"]["least"] for setting in SETTINGS)
            for dtype in CANDIDATES
        }
        verdicts.check(target, found[f"{auto} measured"]["least"] / min(least.values()))
    finish(result, verdicts, args.json)


def _using(choice: Choice, task: Task) -> Task:
    def run() -> None:
        use(choice)
        task()

    return run


def _decoding(lm: LM, args: argparse.Namespace) -> Task:
    count = args.context
    cache = lm.new_cache(count + args.new_tokens + 1)
    read = lm.extend(cache, [_row(count)], stage="prompt", last_logits=True)
    assert read.last_logits is not None
    logits = read.last_logits[0]
    limits = Limits(max_new_tokens=args.new_tokens + 1, ignore_stop=True)

    def run() -> None:
        cache.truncate(count)
        lm.generate(cache, logits, float(count), limits)

    return run


def _prefill(lm: LM, args: argparse.Namespace) -> Task:
    return lambda: lm.extend(
        lm.new_cache(args.prompt), [_row(args.prompt)], stage="prompt", last_logits=True
    )


def _row(tokens: int) -> Row:
    return Row([1 + i % 1000 for i in range(tokens)], [float(i) for i in range(tokens)])


def _report(
    title: str, tasks: Mapping[str, Task], trials: int, scale: float
) -> dict[str, dict[str, float]]:
    seconds, load = interleaved(tasks, trials)
    found = {name: times(values, scale) for name, values in seconds.items()}
    print(f"\n{title}")
    for name, one in found.items():
        print(
            f"  {name:20} {one['least']:8.4g}   median {one['median']:.4g} [{one['q1']:.4g}, {one['q3']:.4g}]"
        )
    print(f"  {load_line(load)}")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        help="a name of the catalog, a source or a folder",
    )
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument(
        "--context", type=int, default=1000, help="tokens in the cache while decoding"
    )
    parser.add_argument("--new-tokens", type=int, default=20, help="decoded in a trial")
    parser.add_argument("--prompt", type=int, default=3000, help="tokens of the prefill")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
