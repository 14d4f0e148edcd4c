"""Build the data for CFIC's fine-tuning, or fine-tune a model on it; both resume an interrupted
run.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from ragauge.cli import _options as options

STEPS = {
    "data": "draw spans from long articles and have questions written for them",
    "train": "fine-tune the model",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    (_, data), (_, train) = options.add_steps(parser, STEPS)
    data.add_argument(
        "--evaluation",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE.jsonl",
        help=(
            "questions of `ragauge fetch --dataset`, whose documents are excluded (named as the "
            "data set's label)"
        ),
    )
    for option, text in (
        ("--data", "folder written by `ragauge sft data`"),
        ("--checkpoints", "folder of checkpoints, from which a killed run resumes"),
    ):
        train.add_argument(option, type=Path, required=True, metavar="FOLDER", help=text)
    train.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help=(
            "GPUs for device cuda; with fewer than its processes, each accumulates more documents "
            "of a step"
        ),
    )
    for action in (data, train):
        options.add_config(action, "a configuration with a section `training`")
        options.add_entry(action, "training")
        options.add_set(action, "a setting of the training")
        options.add_threads(action)
        action.add_argument("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    from ragauge.config import loading

    experiment = options.configuration(args)
    label = ""
    where = "--set"
    stated = dict[str, Any]()
    if experiment:
        where = f"{args.config}: training"
        label = options.label(experiment.training, args.entry, "training", where)
        where = f"{where}.{label}"
        stated = experiment.training[label].model_dump()
    changes, _ = options.settings(args.set)
    settings = loading.parse_training({**stated, **changes}, where)
    if args.step == "data":
        from ragauge.training import data

        limits = experiment.evaluation(label) if experiment else {}
        evaluation = {path: limits.get(path.stem) for path in args.evaluation}
        written: Path | None = data.build(settings.data(), evaluation, args.out, args.threads)
    else:
        if settings.device == "cuda":
            import torch

            # Those that torchrun started, else one for each GPU that is there and allowed.
            planned = min(
                args.gpus or settings.processes, torch.cuda.device_count() or settings.processes
            )
            settings = settings.on_processes(
                int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else planned
            )
        if settings.processes > 1 and "RANK" not in os.environ:
            # become torchrun, which starts this same command once per process
            sys.stdout.flush()
            # argv[0] may be a module's file
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={settings.processes}",
                "--module",
                "ragauge.cli",
                *sys.argv[1:],
            ]
            os.execv(sys.executable, command)
        from ragauge.training import finetuning

        written = finetuning.train(settings, args.data, args.checkpoints, args.out, args.threads)
    if written:  # by the first process
        options.print_result(args, written, out=written)
