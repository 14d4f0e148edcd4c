"""Measure this machine's memory bandwidth and matrix rates."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=options.count, metavar="N", help="default: all cores")
    options.add_device(parser, help="what is measured (cpu)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--allow-load", action="store_true", help="measure once even if other processes are busy")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.cost import machine

    rates = machine.measure(threads=args.threads, device=args.device, allow_load=args.allow_load)
    result = {"provenance": machine.provenance(), **rates}
    options.write_json(args.out, result)
    options.tell(args, args.out, out=args.out)
