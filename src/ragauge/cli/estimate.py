"""Estimate what an experiment takes: downloads, disk, memory, and time on this machine, measured for a minute."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragauge.cli import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_only_config(parser)
    add = parser.add_argument
    shapes = "measure nothing: lower bounds of GPU time from the models' shapes and the data sheet of an A100"
    add("--from-shapes", action="store_true", help=shapes)
    add("--builds", type=Path, metavar="FILE.csv", help="plan builds of databases from those of benchmarks/scale.py")
    add("--chunks", type=options.count, metavar="N", help="chunks of each database; default: its corpus's")
    add("--nodes", type=options.count, default=1, metavar="N", help="nodes that build at the same time (1)")
    add("--cores", type=options.count, default=64, metavar="N", help="cores of a node that builds (64)")


def run(args: argparse.Namespace) -> None:
    from ragauge.measure import databases, estimate
    from ragauge.measure.speed import DATA_SHEET

    config = options.only_config(args)
    builds = databases.read_builds(args.builds, args.nodes, args.cores) if args.builds else None
    found = estimate.estimate(config, DATA_SHEET if args.from_shapes else estimate.machine_for(config))
    parts, plans = [estimate.text(found)], dict[str, Any]()
    for label, settings in config.databases.items():
        size = found.databases[label]
        chunks = args.chunks or (size.chunks if size else None)
        if builds and chunks:
            steps = builds.plan(settings, chunks, size.held_out if size else 0.0)
            parts.append(f"build of {label}, {chunks:,.0f} chunks\n{databases.build_text(steps)}")
            plans[label] = [asdict(step) for step in steps]
    options.tell(args, "\n\n".join(parts), **found.to_json(), **({"builds": plans} if builds else {}))
