"""Measure this machine's memory bandwidth and matrix rates."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=options.count, metavar="N", help="default: all cores")
    options.add_device(parser, help="what is measured (cpu)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import machine

    result = {"provenance": machine.provenance(), **machine.measure(threads=args.threads, device=args.device)}
    options.write_json(args.out, result)
    options.tell(args, args.out, out=args.out)
