"""Estimate the jobs, hours, memory and disk of a chunk database of any size from measured builds of small ones."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.cost.capacity import Measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The measurements, the database to build, and the machines."""
    add = parser.add_argument
    add(
        "--measured",
        type=Path,
        required=True,
        metavar="FILE.csv",
        help="table written by benchmarks/scale.py, with FILE.json beside it",
    )
    add("--chunks", type=options.count, required=True, metavar="N", help="chunks of the planned database")
    add("--held-out", type=options.count, default=100_000, metavar="N", help="held-out texts (100,000)")
    add("--shard-chunks", type=options.count, default=10_000_000, metavar="N", help="chunks per shard (10,000,000)")
    add("--nodes", type=options.count, default=1, metavar="N", help="nodes that build at the same time (1)")
    add("--cores", type=options.count, default=64, metavar="N", help="cores per node (64)")
    add("--nlist", type=options.count, default=16_384, metavar="N", help="inverted lists of the index (16,384)")
    add(
        "--train-vectors",
        type=options.count,
        default=1_000_000,
        metavar="N",
        help="vectors that the index is trained on (1,000,000)",
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Print the plan as Markdown, or as JSON."""
    from dataclasses import asdict

    from ragauge.cost import capacity

    names = ("chunks", "held_out", "shard_chunks", "nodes", "cores", "nlist", "train_vectors")
    target = capacity.Target(**{name: getattr(args, name) for name in names})
    measured = _measured(args.measured.with_suffix(".json"))
    fitted = capacity.rates(capacity.read(args.measured), in_memory=measured.nlist is None)
    steps = capacity.plan(fitted, measured, target)
    if args.json:
        options.show({step.step: asdict(step) for step in steps}, as_json=True)
    else:
        print(capacity.markdown(steps, target), end="")


def _measured(path: Path) -> Measured:
    from ragauge.cost.capacity import Measured
    from ragauge.retrieval.indexes import DEFAULT_TYPE

    try:
        facts = json.loads(path.read_bytes())
        lists = None if facts.get("type", DEFAULT_TYPE) != DEFAULT_TYPE else int(facts["nlist"])
        return Measured(lists, int(facts.get("iterations", 0)), int(facts["dim"]), float(facts["flop_per_s"]))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not what benchmarks/scale.py writes: {error!r}") from error
