"""Our decoder against transformers on the same weights: decoding after a context, and reading a
prompt.

    python benchmarks/decode.py [--model smollm2-135m-instruct] [--dtypes float32,bfloat16]
    [--threads 2]

Every round runs each decoder once, in a random order; a ratio is transformers' median over ours.
transformers runs uncompiled ("eager" PyTorch) with both of its CPU attentions: sdpa, its default,
and eager.
"""

import argparse
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from _common import Task, interleaved, load_line
from ragauge.assets import gguf_weights, resolver
from ragauge.cost.machine import cpu_model
from ragauge.engines.lm import LM
from ragauge.engines.loading import DTYPES, load_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row
from ragauge.measure.protocols.latency import spread

OURS = "ragauge"
ATTENTIONS = ("sdpa", "eager")


@dataclass(frozen=True)
class Sizes:
    """Tokens of the two tasks."""

    context: int
    new: int
    prompt: int


def main() -> None:
    args = _arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    sizes = Sizes(args.context, args.new_tokens, args.prompt)
    print(
        f"{args.model} on {cpu_model()}, {torch.get_num_threads()} threads, {args.trials} interleaved trials"
    )
    for dtype in args.dtypes:
        decode, prefill = _tasks(args.model, dtype, sizes)
        _report(
            f"{dtype} decode after {sizes.context} tokens, ms a token",
            decode,
            args.trials,
            1e3 / sizes.new,
        )
        _report(f"{dtype} prefill of {sizes.prompt} tokens, s", prefill, args.trials, 1.0)


def _tasks(model: str, dtype: str, sizes: Sizes) -> tuple[dict[str, Task], dict[str, Task]]:
    """(decoding, prefill) by decoder, all on the same weights and tokens."""
    lm = load_lm(model, dtype=dtype)
    folder = gguf_weights.float_checkpoint(resolver.resolve(model))
    theirs = {
        f"transformers {attention}": AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[dtype], attn_implementation=attention
        ).eval()
        for attention in ATTENTIONS
    }
    draw = random.Random(0)
    ids = [draw.randrange(lm.shape.vocab) for _ in range(max(sizes.context, sizes.prompt) + 1)]
    context = ids[: sizes.context]
    prompt = ids[: sizes.prompt]
    next_token = ids[sizes.context]
    return (
        {OURS: _our_decoding(lm, context, sizes.new)}
        | {
            name: _their_decoding(made, [*context, next_token], sizes.new)
            for name, made in theirs.items()
        },
        {OURS: lambda: _read(lm, prompt)}
        | {name: _their_prefill(made, prompt) for name, made in theirs.items()},
    )


def _read(lm: LM, ids: list[int], room: int = 0) -> tuple[Any, torch.Tensor]:
    """(cache, logits of the next token) of a plain prompt."""
    cache = lm.new_cache(len(ids) + room)
    read = lm.extend(
        cache, [Row(ids, [float(i) for i in range(len(ids))])], stage="prompt", last_logits=True
    )
    assert read.last_logits is not None
    return cache, read.last_logits[0]


def _our_decoding(lm: LM, context: list[int], new: int) -> Task:
    """`new` steps of the decoder: the first of the `new + 1` tokens is known from the context's
    logits.
    """
    cache, logits = _read(lm, context, new + 1)
    limits = Limits(max_new_tokens=new + 1, ignore_stop=True)

    def run() -> None:
        cache.truncate(len(context))
        lm.generate(cache, logits, float(len(context)), limits)

    return run


def _their_decoding(model: Any, ids: list[int], new: int) -> Task:
    """`generate` with the keys and values of all but the last token at hand: `new` steps as well."""
    tokens = torch.tensor([ids])
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(tokens[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
    settings = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 0}

    def run() -> None:
        if cache.get_seq_length() >= len(ids):
            cache.crop(len(ids) - 1 - cache.get_seq_length())  # a negative number: tokens to forget
        model.generate(
            tokens, attention_mask=torch.ones_like(tokens), past_key_values=cache, **settings
        )

    return run


@torch.inference_mode()
def _forward(model: Any, tokens: torch.Tensor) -> None:
    model(tokens, use_cache=True, logits_to_keep=1)


def _their_prefill(model: Any, ids: list[int]) -> Task:
    tokens = torch.tensor([ids])
    return lambda: _forward(model, tokens)


def _report(title: str, tasks: Mapping[str, Task], trials: int, scale: float) -> None:
    """Time the tasks and print median, quartiles and ratio of each, and how busy others kept the
    machine.
    """
    seconds, load = interleaved(tasks, trials)
    found = {name: spread([scale * value for value in values]) for name, values in seconds.items()}
    print(f"\n{title}")
    for name, times in found.items():
        ratio = (
            "" if name == OURS else f"   {times['median'] / found[OURS]['median']:.2f} times ours"
        )
        print(f"  {name:20} {times['median']:8.4g}  [{times['q1']:.4g}, {times['q3']:.4g}]{ratio}")
    print(f"  {load_line(load)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        help="a name of the catalog, a source or a folder",
    )
    parser.add_argument(
        "--dtypes", type=lambda text: text.split(","), default=["float32", "bfloat16"]
    )
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument(
        "--context", type=int, default=1000, help="tokens in the cache while decoding"
    )
    parser.add_argument("--new-tokens", type=int, default=20, help="decoded in a trial")
    parser.add_argument("--prompt", type=int, default=3000, help="tokens of the prefill")
    return parser.parse_args()


if __name__ == "__main__":
    main()
