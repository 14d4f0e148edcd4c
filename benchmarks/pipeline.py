"""What pipelining saves: PipeRAG against RETRO and no retrieval, beside the ideal overlap and the
performance model.

    python benchmarks/pipeline.py --database FOLDER --index LABEL --cores 0 --retrieval-cores 1
    [--nprobe 64]

The server of the index and the decoder have cores of their own. All ways continue the same 64
tokens to 1,024 greedily, in a random order within each round, after one untimed run of each. With
--onnx FOLDER (`ragauge piperag export`) ONNX Runtime generates; without retrieval our decoder in
torch and transformers' in eager torch are timed beside it, and all must give the same tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.pipelines.service.cores import pin

if TYPE_CHECKING:
    from ragauge.cost.trace import Trace
    from ragauge.engines.lm import LM
    from ragauge.pipelines.evaluation import EvaluationStretch
    from ragauge.pipelines.performance import GenerationModel
    from ragauge.pipelines.pipeline import Pipeline
    from ragauge.pipelines.reader import NeighbourModel
    from ragauge.pipelines.service.process import Running
    from ragauge.pipelines.settings import PipelineSettings
    from ragauge.pipelines.specification import PipelineSpecification


TORCH = ("no_retrieval torch", "no_retrieval transformers")  # beside ONNX Runtime


def main() -> None:
    args = _arguments()
    from ragauge.pipelines.service.process import running

    with ExitStack() as opened:
        options = ["--cores", args.retrieval_cores] if args.retrieval_cores else []
        server = opened.enter_context(
            running(args.database / "indexes" / args.index, options=options)
        )
        if args.cores:
            pin(args.cores)
        _compare(args, server, opened)


def _compare(args: argparse.Namespace, server: Running, opened: ExitStack) -> None:
    from ragauge.cost.machine import competing_load
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.evaluation import texts
    from ragauge.pipelines.service.client import Client

    client = opened.enter_context(Client(server.address, deadline_s=120))
    [text] = texts(Database(args.database), args.tokens, 1)
    ways = _ways(args, client)
    for way in ways.values():
        way.warm_up(text)
    runs: dict[str, list[tuple[list[int], Trace, float]]] = {name: [] for name in ways}
    draw = random.Random(0)
    with competing_load() as load:  # the server is a child of this process, and no other's
        for _ in range(args.trials):
            for name in draw.sample(list(ways), len(ways)):
                ids, _, trace, seconds = ways[name].generate(text)
                runs[name].append((ids, trace, seconds))
    _report(ways, runs)
    cores = f"cores {args.cores}, of the server {args.retrieval_cores}"
    print(f"competing load {load.share:.1%}; {args.trials} trials; {cores}")


class Transformers:
    """`generate` of transformers with its cache, in eager torch: what an export is usually compared
    with.
    """

    def __init__(self, specification: PipelineSpecification) -> None:
        from transformers import AutoModelForCausalLM

        from ragauge.assets import gguf_weights, resolver

        folder = gguf_weights.float_checkpoint(resolver.resolve(specification.source))
        self.settings = specification.pipeline
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype="float32", attn_implementation="eager"
        ).eval()

    def warm_up(self, text: EvaluationStretch) -> None:
        """Generate once untimed."""
        self.generate(text)

    def generate(self, text: EvaluationStretch) -> tuple[list[int], None, Trace, float]:
        """See `Pipeline.generate`."""
        import torch

        from ragauge.cost.trace import Call
        from ragauge.pipelines.pipeline import PROMPT

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


def _ways(args: argparse.Namespace, client: Any) -> dict[str, Pipeline | Transformers]:
    """The ways that are compared, by name."""
    from ragauge.engines.loading import load_lm
    from ragauge.pipelines.modes._joint import JointDecoder
    from ragauge.pipelines.modes._joint_onnx import OnnxJointDecoder
    from ragauge.pipelines.modes.base import Checkpoint
    from ragauge.pipelines.modes.joint import JointAttention
    from ragauge.pipelines.pipeline import Pipeline
    from ragauge.pipelines.settings import PipelineSettings
    from ragauge.pipelines.specification import specify_pipeline

    torch_lm = load_lm(args.model, threads=args.threads, dtype=args.dtype)
    adapters = None if args.mode == "joint" else "untrained"
    read = {
        "mode": args.mode,
        "adapters": adapters,
        "task": "generate",
        "tokens": args.tokens,
        "trials": 2,
    }
    if args.mode == "joint":
        exported = Checkpoint(
            exported=args.onnx, threads=args.threads, tokenizer=torch_lm.tokenizer
        )
        joint = JointDecoder(torch_lm, JointAttention())
        lm: NeighbourModel = OnnxJointDecoder(exported, joint.mode) if args.onnx else joint
    else:
        lm = _crossed(torch_lm)
    piperag = {"schedule": "piperag"}
    schedules: dict[str, dict[str, Any]] = {
        "no_retrieval": {"schedule": "no_retrieval"},
        "retro": {"schedule": "retro", "nprobe": args.nprobe},
        **{
            f"piperag m={m}": {**piperag, "interval": m, "nprobe": args.nprobe}
            for m in args.intervals
        },
        **{
            f"piperag S3 m={m}": {**piperag, "interval": m, "nprobe": "hide"}
            for m in args.intervals
        },
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
    ways: dict[str, Pipeline | Transformers] = {
        name: Pipeline(lm, specification, client) for name, specification in specifications.items()
    }
    base = specifications["no_retrieval"]
    if args.onnx:
        ways |= zip(TORCH, (Pipeline(joint, base, client), Transformers(base)), strict=True)
    return ways


def _crossed(lm: LM) -> NeighbourModel:
    """The decoder with cross-attention that was not trained: it takes the time that it takes
    trained.
    """
    from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights, cross_layers

    return CrossDecoder(lm, CrossWeights(lm.decoder, cross_layers(lm.shape.layers)))


def _report(ways: dict[str, Pipeline | Transformers], runs: dict[str, Any]) -> None:
    from ragauge.cost import overlap

    medians = {
        name: statistics.median(seconds for *_, seconds in found) for name, found in runs.items()
    }
    errors = []
    for name, found in runs.items():
        ideal = statistics.median(overlap.ideal_s(trace) for _, trace, _ in found)
        line = f"{name:22} {medians[name]:8.3f} s  over ideal {medians[name] / ideal:5.3f}  "
        line += f"RETRO over it {medians['retro'] / medians[name]:5.2f}  "
        line += f"over no retrieval {medians[name] / medians['no_retrieval']:5.2f}"
        predicted = _predicted(ways[name], [trace for _, trace, _ in found])
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


def _predicted(way: Pipeline | Transformers, traces: list[Trace]) -> float | None:
    """Predicted seconds of a way: its parts fitted to its first trial, whose waits and overlap are
    not looked at.

    None without retrieval, of which there is nothing to overlap.
    """
    from ragauge.cost import overlap
    from ragauge.pipelines.performance import GenerationModel

    settings = way.settings
    first = traces[0]
    searches = [c.seconds or 0.0 for c in first if c.stage in (overlap.RETRIEVAL, overlap.PREFETCH)]
    if not searches:
        return None
    return overlap.ideal_s(
        _predicted_trace(GenerationModel.fit(first), settings, statistics.median(searches))
    )


def _predicted_trace(
    model: GenerationModel, settings: PipelineSettings, retrieval_s: float
) -> Trace:
    """The predicted trace of continuing 64 tokens, with searches that take so many seconds."""
    from ragauge.cost import overlap
    from ragauge.cost.trace import Call
    from ragauge.pipelines.windows import CHUNK, NEIGHBOUR

    trace = []
    length = CHUNK
    k = settings.neighbours
    windows = settings.make_schedule().windows
    while length < settings.tokens:
        end = min(settings.tokens, windows.first(windows.of(length - 1) + 1) + 1)
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--database", type=Path, required=True, metavar="FOLDER")
    add("--index", default="ivf", metavar="LABEL")
    add("--model", default="smollm2-135m-instruct")
    add("--dtype", default="float32", choices=("float32", "bfloat16"))
    add(
        "--mode",
        default="joint",
        choices=("joint", "cross_attention"),
        help="how neighbours are read",
    )
    add(
        "--onnx",
        type=Path,
        metavar="FOLDER",
        help="generate by ONNX Runtime, exported by `ragauge piperag export`",
    )
    add("--cores", help="of the decoder")
    add("--retrieval-cores", help="of the server")
    add("--threads", type=int, help="of the decoder; default: torch's own choice")
    add("--nprobe", type=int, default=64)
    add("--intervals", type=lambda text: [int(m) for m in text.split(",")], default=[64])
    add("--tokens", type=int, default=1024)
    add("--trials", type=int, default=5)
    args = parser.parse_args()
    if args.onnx and args.mode != "joint":
        parser.error("--onnx: reads neighbours by the mode joint alone")
    if args.onnx and args.dtype != "float32":
        parser.error(f"--dtype {args.dtype}: ONNX Runtime runs the decoder in float32")
    return args


if __name__ == "__main__":
    main()
