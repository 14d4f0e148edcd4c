"""Questions side by side against one after another: questions a second, and what products of a few
rows take.

    python benchmarks/batch.py [--model smollm2-135m-instruct] [--dtypes float32,bfloat16]
    [--threads 2] [--json]

Random tokens of the published lengths (a preamble of 39, 20 documents of 137, a question of 11, a
task of 13); every response has the same number of tokens. Documents are prepared before, as in the
latency protocol; `--whole` counts their reading too.
"""

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from _common import finish, interleaved, load_line, times
from ragauge.cost import tokens
from ragauge.cost.machine import cpu_model
from ragauge.engines.batching import BatchScheduler
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm
from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base.making import make
from ragauge.methods.base.method import Method
from ragauge.methods.base.wrapper import EngineAround
from ragauge.methods.prompts import Prompt
from targets import Verdicts

JUDGED = {100: "batch8_long", 5: "batch8_short"}  # targets by tokens of a response
ROWS = (1, 4, 8, 16)

Work = Callable[[SpanEngine], object]


def main() -> None:
    args = _arguments()
    verdicts = Verdicts()
    found = {}
    for dtype in args.dtypes:
        lm = load_lm(args.model, dtype=dtype, threads=args.threads)
        print(
            f"{args.model} {dtype} on {cpu_model()}, {torch.get_num_threads()} threads, {args.method}"
        )
        found[dtype] = {"products_ms": _products(lm, args.trials)}
        for new in args.new_tokens:
            rates = _rates(lm, new, args)
            found[dtype][f"{new} tokens"] = rates
            if new in JUDGED and "8" in rates and not args.whole:
                verdicts.check(JUDGED[new], rates["8"]["gain"], dtype)
    finish(
        {"model": args.model, "method": args.method, "whole": args.whole, "found": found},
        verdicts,
        args.json,
    )


def _rates(lm: LM, new: int, args: argparse.Namespace) -> dict[str, Any]:
    """Number side by side -> questions a second and how many times those of one by one they are."""
    limits = Limits(max_new_tokens=new, ignore_stop=True)
    method = make(args.method)
    counts = tokens.load(args.tokens)
    prompts = [
        Prompt(**tokens.random_segments(counts, lm.shape.vocab, seed))
        for seed in range(max(args.sizes))
    ]
    works = [_work(lm, method, prompt, limits, args.whole) for prompt in prompts]
    batched = {str(size): functools.partial(_side_by_side, lm, works, size) for size in args.sizes}
    seconds, load = interleaved({"1": lambda: [work(lm) for work in works], **batched}, args.trials)
    print(
        f"  {new} tokens a response{', documents included' if args.whole else ''}; {load_line(load)}"
    )
    found = {}
    for size, taken in ((size, times(values)) for size, values in seconds.items()):
        gain = min(seconds["1"]) / taken["least"]
        found[size] = {
            "seconds": taken,
            "questions_per_s": len(works) / taken["least"],
            "gain": gain,
        }
        print(
            f"    {size:>3} side by side: {found[size]['questions_per_s']:.3f} questions a second, {gain:.2f} times"
        )
    return found


def _work(lm: LM, method: Method, prompt: Prompt, limits: Limits, whole: bool) -> Work:
    if whole:
        return lambda engine: method.answer(engine, method.prepare(engine, prompt), prompt, limits)
    around = EngineAround(lm)
    state = method.prepare(around, prompt)

    def answer(engine: SpanEngine) -> object:
        around.engine = engine  # what was prepared goes on asking the engine that prepared it
        return method.answer(around, state, prompt, limits)

    return answer


def _side_by_side(lm: LM, works: list[Work], size: int) -> None:
    steps = 0
    with BatchScheduler(lm, size) as batch:
        for work in works:
            batch.submit(work)
        while batch.unfinished:
            steps += 1
            for task in batch.step():
                task.result()
    if steps == 1:  # no work waited for a pass
        raise RuntimeError("the questions were answered one after another")


@torch.inference_mode()
def _products(lm: LM, trials: int) -> Mapping[str, float]:
    """Tokens -> milliseconds of all linear layers and the logits: what a step takes besides
    attention.
    """

    def products(rows: int) -> None:
        x = torch.zeros(rows, lm.shape.d_model, dtype=lm.dtype, device=lm.device)
        lm.decoder.logits(lm.decoder.run_layers(x, queries))
        lm.synchronize()

    def queries(index: int, normed: Tensor) -> Tensor:
        return lm.decoder.split(index, lm.decoder.weights.layers[index].qkv(normed), None)[
            0
        ].flatten(1)

    seconds, _ = interleaved(
        {str(rows): functools.partial(products, rows) for rows in ROWS}, 5 * trials
    )
    least = {rows: 1e3 * min(values) for rows, values in seconds.items()}
    print(
        "  linear layers and logits, ms: "
        + ", ".join(f"{ms:.1f} of {rows}" for rows, ms in least.items())
    )
    return least


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        help="a name of the catalog, a source or a folder",
    )
    parser.add_argument(
        "--dtypes", type=lambda text: text.split(","), default=["float32", "bfloat16"]
    )
    parser.add_argument(
        "--method", default="superposition", help="a method, with its default options"
    )
    parser.add_argument("--tokens", default="paper", help="token counts, by name or file")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument(
        "--sizes", type=numbers, default=[8], help="questions side by side; as many are asked"
    )
    parser.add_argument("--new-tokens", type=numbers, default=[5, 100])
    parser.add_argument("--whole", action="store_true", help="count the documents' reading too")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    main()
