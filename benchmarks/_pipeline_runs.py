"""What `pipeline.py` runs: the variants that are compared, and its report.

It is imported after the process was pinned to its cores, as the threads of torch keep theirs.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from _common import Task, interleaved, load_line
from ragauge.assets.gguf_weights import float_checkpoint
from ragauge.assets.resolver import resolve
from ragauge.cost import overlap
from ragauge.cost.trace import Call, Trace
from ragauge.engines.loading import load_lm
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.evaluation import EvaluationStretch, texts
from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes._joint_onnx import OnnxJointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.performance import GenerationModel
from ragauge.pipelines.pipeline import PROMPT, Pipeline
from ragauge.pipelines.reader import NeighbourModel
from ragauge.pipelines.service.client import Client
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import PipelineSpecification, specify_pipeline
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR

TORCH = ("no_retrieval torch", "no_retrieval transformers")  # beside ONNX Runtime
Run = tuple[list[int], Trace, float]  # tokens, trace, seconds


def compare(args: argparse.Namespace, address: str) -> None:
    """Run every variant against the server and print its times."""
    with Client(address, deadline_s=120) as client:
        [text] = texts(Database(args.database), args.tokens, 1)
        variants = _variants(args, client)
        runs: dict[str, list[Run]] = {name: [] for name in variants}
        for variant in variants.values():
            variant.warm_up(text)
        tasks = {name: _task(variant, text, runs[name]) for name, variant in variants.items()}
        _, load = interleaved(tasks, args.trials)  # the server is a child of this process
    _report(variants, {name: timed for name, (_, *timed) in runs.items()})
    cores = f"cores {args.cores}, of the server {args.retrieval_cores}"
    print(f"{load_line(load)}; {args.trials} trials; {cores}")


def _task(variant: "Pipeline | Transformers", text: EvaluationStretch, runs: list[Run]) -> Task:
    def run() -> None:
        ids, _, trace, seconds = variant.generate(text)
        runs.append((ids, trace, seconds))

    return run


class Transformers:
    """transformers' own `generate` in eager torch, which exports are usually compared with."""

    def __init__(self, specification: PipelineSpecification) -> None:
        folder = float_checkpoint(resolve(specification.source))
        self.settings = specification.pipeline
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype="float32", attn_implementation="eager"
        ).eval()

    def warm_up(self, text: EvaluationStretch) -> None:
        """Generate once untimed."""
        self.generate(text)

    def generate(self, text: EvaluationStretch) -> tuple[list[int], None, Trace, float]:
        """See `Pipeline.generate`."""
        prompt = torch.tensor([text.ids[:PROMPT]])
        new = self.settings.tokens - PROMPT
        started = time.perf_counter()
        limits = {
            "do_sample": False,
            "min_new_tokens": new,
            "max_new_tokens": new,
            "pad_token_id": 0,
        }
        [ids] = self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), **limits
        ).tolist()
        seconds = time.perf_counter() - started
        return (
            ids[PROMPT:],
            None,
            [Call("decode", (1,), (PROMPT,), steps=new, seconds=seconds)],
            seconds,
        )


def _variants(args: argparse.Namespace, client: Client) -> dict[str, Pipeline | Transformers]:
    """The variants that are compared, by name."""
    torch_lm = load_lm(args.model, threads=args.threads, dtype=args.dtype)
    lm: NeighbourModel
    if args.mode == "joint":
        lm = JointDecoder(torch_lm)
    else:  # cross-attention that was not trained takes the time that it takes trained
        lm = CrossDecoder(torch_lm, CrossWeights.fresh(torch_lm, seed=0))
    if args.onnx:
        exported = Checkpoint(
            exported=args.onnx, threads=args.threads, tokenizer=torch_lm.tokenizer
        )
        lm = OnnxJointDecoder(exported)
    read = {
        "mode": args.mode,
        "adapters": None if args.mode == "joint" else "untrained",
        "task": "generate",
        "tokens": args.tokens,
        "trials": 2,
    }
    piperag = {"schedule": "piperag", "interval": args.interval}
    schedules: dict[str, dict[str, Any]] = {
        "no_retrieval": {"schedule": "no_retrieval"},
        "retro": {"schedule": "retro", "nprobe": args.nprobe},
        "piperag": {**piperag, "nprobe": args.nprobe},
        "piperag hide": {**piperag, "nprobe": "hide"},
    }
    facts: dict[str, Any] = {
        "model": args.model,
        "database": args.database.name,
        "index": None,
        "source": args.model,
    }
    specifications = {
        name: specify_pipeline(PipelineSettings(**read, **schedule), **facts)
        for name, schedule in schedules.items()
    }
    variants: dict[str, Pipeline | Transformers] = {
        name: Pipeline(lm, specification, client) for name, specification in specifications.items()
    }
    if args.onnx:
        base = specifications["no_retrieval"]
        variants |= zip(
            TORCH, (Pipeline(JointDecoder(torch_lm), base, client), Transformers(base)), strict=True
        )
    return variants


def _report(variants: dict[str, Pipeline | Transformers], runs: dict[str, list[Run]]) -> None:
    medians = {
        name: statistics.median(seconds for *_, seconds in found) for name, found in runs.items()
    }
    errors = []
    for name, found in runs.items():
        ideal = statistics.median(overlap.ideal_s(trace) for _, trace, _ in found)
        line = f"{name:26} {medians[name]:8.3f} s  over ideal {medians[name] / ideal:5.3f}  "
        line += f"RETRO over it {medians['retro'] / medians[name]:5.2f}  "
        line += f"over no retrieval {medians[name] / medians['no_retrieval']:5.2f}"
        predicted = _predicted(variants[name], found[0][1])
        if predicted is not None:
            errors.append(abs(predicted - medians[name]) / medians[name])
            line += f"  predicted {predicted:8.3f} s ({errors[-1]:.1%})"
        print(line)
    if errors:
        print(f"performance model: median error {statistics.median(errors):.1%}")
    for name in (name for name in TORCH if name in runs):
        same = runs["no_retrieval"][0][0] == runs[name][0][0]
        ratio = medians[name] / medians["no_retrieval"]
        print(f"{name} over ONNX Runtime {ratio:.2f}; {'the same' if same else 'OTHER'} tokens")


def _predicted(variant: Pipeline | Transformers, first: Trace) -> float | None:
    """Predict a variant's seconds from the parts of its first trial, without its waits.

    Returns:
        None without retrieval, which has nothing to overlap.
    """
    searches = [c.seconds or 0.0 for c in first if c.stage in (overlap.RETRIEVAL, overlap.PREFETCH)]
    if not searches:
        return None
    return overlap.ideal_s(
        _predicted_trace(GenerationModel.fit(first), variant.settings, statistics.median(searches))
    )


def _predicted_trace(
    model: GenerationModel, settings: PipelineSettings, retrieval_s: float
) -> Trace:
    """The predicted trace of continuing 64 tokens, with searches of `retrieval_s` seconds."""
    trace = []
    length = CHUNK
    k = settings.neighbours
    windows = settings.make_schedule().windows
    while length < settings.tokens:
        end = min(settings.tokens, windows.first(windows.window_at(length - 1) + 1) + 1)
        stage = overlap.PREFETCH if windows.stale and length > CHUNK else overlap.RETRIEVAL
        read = overlap.AHEAD if model.ahead and stage == overlap.PREFETCH else "neighbours"
        trace += [
            Call(stage, (CHUNK,), (0,), macs=0, seconds=retrieval_s),
            Call(read, (NEIGHBOUR,) * k, (1,) * k, parallel=True, seconds=model.read_s(k)),
        ]
        seconds = model.decode_s(length, end - length, k * NEIGHBOUR)
        trace.append(
            Call("decode", (1,), (length,), logits=(1,), steps=end - length, seconds=seconds)
        )
        length = end
    return trace
