"""Decoding and prefill of a 7B model of random weights beside what the GPU can do.

    python benchmarks/gpu.py [--model llama-2-7b] [--dtype bfloat16] [--context 1000] [--side 64] [--json]

Decoding replays a CUDA graph of one token. Its floor is the roofline of its own trace at the rates
that are measured first; prefill is compared with the measured rate of matrix products, and read
with each of torch's attention kernels. `--side` prompts are then answered together, and a prompt
whose prefix is cached is read to its end; both also by vLLM, with dummy weights of the same shape,
where it is installed and `--vllm` names a folder with the model's configuration.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from _common import Task, finish, interleaved, load_line, parse_options, times
from ragauge.cost import gap, machine, shapes
from ragauge.cost.flop import flop
from ragauge.cost.roofline import matmul_rate
from ragauge.engines.batching import BatchScheduler
from ragauge.engines.lm import LM
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.errors import error_line
from ragauge.measure.timing import shape_of
from ragauge.methods.base.method import plain_row
from targets import Verdicts

KERNELS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
REST = 8  # tokens after a cached prefix
CACHED = f"last {REST} tokens after a cached prefix"


def main() -> None:
    args = parse_options(
        __doc__,
        model=("llama-2-7b", "a model whose shape is known, or a folder"),
        dtype=("bfloat16", "of the decoder's numbers"),
        device=("cuda", "cpu shows that the script runs"),
        trials=(5, "rounds"),
        context=(1000, "tokens in the cache while decoding"),
        new_tokens=(100, "decoded in a trial"),
        prompt=(3000, "tokens of the prefill"),
        side=(64, "prompts answered together"),
        side_context=(128, "tokens of each of them"),
        side_new_tokens=(64, "written for each of them"),
        vllm=(str, "compare with vLLM on the configuration in this folder"),
    )
    if args.device == "cuda" and not torch.cuda.is_available():
        verdicts = Verdicts()
        for name in ("gpu_decode_roofline", "gpu_prefill_rate"):
            verdicts.skip(name, "torch finds no CUDA device here")
        finish({}, verdicts, args.json)
        return
    rates = machine.measure(device=args.device)
    room = max(args.prompt, args.context) + args.new_tokens + 1
    shape = shapes.with_context(shape_of(args.model), room)
    lm = random_lm(shape, dtype=args.dtype, device=args.device)
    draw = random.Random(0)
    ids = [draw.randrange(lm.shape.vocab) for _ in range(room)]
    work = {
        "decode": (ids[: args.context], args.new_tokens + 1),
        "context": (ids[: args.context], 1),
        "prefill": (ids[: args.prompt], 1),
    }
    answered: dict[str, Task] = {name: partial(_answer, lm, *of) for name, of in work.items()}
    prompts = [ids[i : i + args.side_context] for i in range(args.side)]
    answered["side by side"] = partial(_together, lm, prompts, args.side_new_tokens)
    answered |= _by_kernel(lm, work["prefill"][0])
    answered[CACHED] = _rest(lm, ids[: args.prompt])
    if args.vllm:
        answered["side by side, vLLM"] = _vllm(args, prompts, args.side_new_tokens)
        answered[f"{CACHED}, vLLM"] = _vllm(args, [ids[: args.prompt]], 1, cached=True)
    seconds, load = interleaved(answered, args.trials)
    found = {name: times(of) for name, of in seconds.items()}
    stages = {name: _stages(lm, *of, rates) for name, of in work.items()}
    where = f"{args.model} {args.dtype} on {machine.processor(args.device)}"
    print(f"{where}, {args.trials} interleaved trials; {load_line(load)}")
    result = {
        "times": found,
        "machine": rates,
        "stages": stages,
        "rates": _report(lm, args, found, stages, rates),
    }
    verdicts = Verdicts()
    verdicts.check("gpu_decode_roofline", result["rates"]["decode_over_roofline"])
    verdicts.check("gpu_prefill_rate", result["rates"]["prefill_over_matmul_rate"])
    finish(result, verdicts, args.json)


def _answer(lm: LM, ids: Sequence[int], new: int) -> None:
    lm.respond(list(ids), Limits(max_new_tokens=new, ignore_stop=True))
    lm.synchronize()


def _by_kernel(lm: LM, ids: Sequence[int]) -> Iterator[tuple[str, Task]]:
    """Prefill by each of torch's attention kernels that runs here, others with their reason."""

    def read(kernel: str) -> None:
        with sdpa_kernel(SDPBackend.__members__[kernel]):
            _answer(lm, ids, 1)

    for kernel in KERNELS:
        try:
            read(kernel)
        except RuntimeError as error:
            print(f"  prefill, {kernel}: not here: {error_line(error)}")
            continue
        yield f"prefill, {kernel}", partial(read, kernel)


def _rest(lm: LM, ids: Sequence[int]) -> Task:
    """Read the last tokens of a prompt; the others are cached."""
    start = len(ids) - REST
    cache = lm.new_cache(len(ids))
    lm.extend(cache, [plain_row(ids[:start], 0)], stage="documents")

    def read() -> None:
        cache.truncate(start)
        lm.extend(cache, [plain_row(ids[start:], start)], stage="prompt", last_logits=True)
        lm.synchronize()

    return read


def _together(lm: LM, prompts: Sequence[Sequence[int]], new: int) -> None:
    with BatchScheduler(lm, len(prompts)) as batch:
        for task in batch.run(partial(_respond, ids=list(ids), new=new) for ids in prompts):
            task.result()
    lm.synchronize()


def _respond(engine: Any, ids: list[int], new: int) -> Any:
    return engine.respond(ids, Limits(max_new_tokens=new, ignore_stop=True))


def _stages(lm: LM, ids: Sequence[int], new: int, rates: dict[str, Any]) -> dict[str, Any]:
    """By stage: seconds, roofline and multiplications of one answer, and the FLOPs of all of it."""
    with lm.tracing() as trace:
        _answer(lm, ids, new)
    return {**gap.stages(trace, lm.shape, lm.dtype, rates), "flop": flop(trace, lm.shape)}


def _report(
    lm: LM,
    args: argparse.Namespace,
    found: dict[str, Any],
    stages: dict[str, Any],
    rates: dict[str, Any],
) -> dict[str, float]:
    prefill_s = found["prefill"]["least"]
    token_s = (found["decode"]["least"] - found["context"]["least"]) / args.new_tokens
    written = args.side * args.side_new_tokens
    report = {
        "decode_ms": 1e3 * token_s,
        "decode_over_roofline": token_s
        * args.new_tokens
        / stages["decode"]["decode"]["roofline_s"],
        "prefill_over_matmul_rate": stages["prefill"]["flop"]
        / prefill_s
        / matmul_rate(rates, lm.dtype),
        "side_by_side_tokens_per_s": written / found["side by side"]["least"],
    }
    report |= {f"{name} s": found[name]["least"] for name in found}
    for name, value in report.items():
        print(f"  {name:32} {value:.4g}")
    return report


def _vllm(
    args: argparse.Namespace, prompts: Sequence[Sequence[int]], new: int, cached: bool = False
) -> Task:
    """Answer prompts together by vLLM; `cached`: with its cache of prefixes."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        args.vllm, load_format="dummy", skip_tokenizer_init=True, dtype=args.dtype, enable_prefix_caching=cached,
        max_model_len=len(prompts[0]) + new + 8, max_num_seqs=len(prompts), gpu_memory_utilization=0.3,
    )  # fmt: skip
    limits = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False)
    asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
    return lambda: llm.generate(asked, limits, use_tqdm=False)


if __name__ == "__main__":
    main()
