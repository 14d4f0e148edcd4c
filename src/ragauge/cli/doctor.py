"""Report what this machine can run and how fast, and what to do about what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.measure.installation import HealthCheck

STEPS = {
    "machine": "measure memory bandwidth and matrix rates, for `ragauge time`",
    "kernels": "show the kernels in use, measuring those not measured yet",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure how fast this machine reads and writes tokens",
    )
    options.add_questions(parser, required=False)
    options.add_set(parser, "an option of the data set, KEY=VALUE")
    (_, machine), (_, kernels) = options.add_steps(parser, STEPS, required=False)
    machine.set_defaults(verb=_measure_machine)
    options.add_threads(machine)
    options.add_device(machine, help="what is measured (cpu)")
    machine.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    machine.add_argument(
        "--allow-load", action="store_true", help="measure once even if other processes are busy"
    )
    kernels.set_defaults(verb=_show_kernels)
    options.add_threads(kernels, "default: torch's own choice")


def run(args: argparse.Namespace) -> None:
    from ragauge.measure.installation import findings

    if args.dataset is None and (args.config or args.data or args.set):
        raise UserError("--config, --data, --set: only valid with --dataset")
    shown = list(_dataset_findings(args) if args.dataset else findings(args.measure))
    width = max(12, *(len(one.topic) for one in shown))
    lines = [
        f"{one.topic:{width}} {one.found}{f'  -> {one.todo}' if one.todo else ''}" for one in shown
    ]
    options.print_result(args, "\n".join(lines), findings=[one._asdict() for one in shown])


def _dataset_findings(args: argparse.Namespace) -> Iterator[HealthCheck]:
    """Yield how often rules find the gold document without reading, and what questions share."""
    from ragauge.measure.installation import HealthCheck
    from ragauge.results import shortcuts

    config = options.configuration(args)
    questions = options.questions(args, config, is_subject=True)
    examples = questions.examples(config.datasets[args.dataset].limit if config else None)
    found = shortcuts.summary(shortcuts.features(examples), args.seed or 0)
    above = shortcuts.above_chance(found)
    for name, of in found.items():
        ends = "" if of.low is None else f" [{of.low:.3g}, {of.high:.3g}]"
        todo = "more often than at random" if name in above else ""
        yield HealthCheck(name.replace("_", " "), f"{of.value:.3g}{ends}, {of.n} questions", todo)


def _measure_machine(args: argparse.Namespace) -> None:
    from ragauge.cost import machine
    from ragauge.engines.tuning import weight_read

    rates = machine.measure(
        args.threads, args.device, allow_load=args.allow_load, weight_read=weight_read
    )
    options.write_json(args.out, {"provenance": machine.provenance(), **rates})
    options.print_result(args, args.out, out=args.out)


def _show_kernels(args: argparse.Namespace) -> None:
    import torch

    from ragauge.engines import tuning

    if args.threads:
        torch.set_num_threads(args.threads)
    tables = tuning.load_or_measure_tables([torch.float32, torch.bfloat16, torch.int8])
    path = str(tuning.table_path())
    rows = {f"{name}, {size}": row for name, table in tables.items() for size, row in table.items()}
    text = f"{options.readable(rows)}\n{path}"
    options.print_result(args, text, machine=tuning.machine(), file=path, kernels=tables)
