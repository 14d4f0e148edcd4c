"""Build the data for CFIC's fine-tuning, or fine-tune a model on it; both resume an interrupted run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cli import _options as options
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.config.schema import Config
    from ragauge.training.settings import TrainingSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two actions, with the settings that both take."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    data = actions.add_parser("data", help="draw spans from long articles and have questions written for them")
    data.add_argument(
        "--evaluation",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE.jsonl",
        help="questions of `ragauge fetch --dataset`, whose documents are excluded (named as the data set's label)",
    )
    train = actions.add_parser("train", help="fine-tune the model")
    train.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="folder written by `ragauge sft data`"
    )
    train.add_argument(
        "--checkpoints",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of checkpoints, from which a killed run resumes",
    )
    for action in (data, train):
        options.add_config(action, "a configuration with a section `training`")
        options.add_entry(action, "training")
        options.add_set(action, "a setting of the training")
        action.add_argument("--threads", type=options.count, metavar="N")
        action.add_argument("--out", type=Path, required=True, metavar="FOLDER")


def run(args: argparse.Namespace) -> None:
    """Build the data, or train."""
    from ragauge.config import loading

    experiment = loading.load(args.config) if args.config else None
    label, settings = _settings(args, experiment)
    try:
        if args.action == "data":
            _data(args, settings, experiment.evaluation(label) if experiment else {})
        else:
            _train(args, settings)
    except OSError as error:  # no space left, no permission
        raise UserError(f"{error.filename or args.out}: {error.strerror or error}") from error


def _data(args: argparse.Namespace, settings: TrainingSettings, limits: dict[str, int | None]) -> None:
    from ragauge.training import data

    evaluation = {path: limits.get(path.stem) for path in args.evaluation}
    built = data.build(settings.data(), evaluation, args.out, args.threads)
    options.tell(args, built, out=built)


def _train(args: argparse.Namespace, settings: TrainingSettings) -> None:
    if settings.processes > 1 and "RANK" not in os.environ:
        _start_processes(settings.processes)
    from ragauge.training import finetuning

    if written := finetuning.train(settings, args.data, args.checkpoints, args.out, args.threads):
        options.tell(args, written, out=written)


def _start_processes(count: int) -> None:
    """Become torchrun, which starts this same command once per process."""
    sys.stdout.flush()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    os.execv(sys.executable, [*launcher, "--module", "ragauge.cli", *sys.argv[1:]])  # argv[0] may be a module's file


def _settings(args: argparse.Namespace, experiment: Config | None) -> tuple[str, TrainingSettings]:
    """The training of --entry with the keys of --set."""
    from ragauge.config import loading

    changes, _ = options.settings(args.set)
    trainings = experiment.training if experiment else {}
    if experiment and not trainings:
        raise UserError(f"{args.config}: has no section `training`")
    label = args.entry or "sft"
    if experiment:
        label = options.label(trainings, args.entry, "training", f"{args.config}: training")
    given: dict[str, Any] = trainings[label].model_dump() if experiment else {}
    place = str(args.config) if experiment and not changes else "--set"
    return label, loading.parse_training({**given, **changes}, place, label)
