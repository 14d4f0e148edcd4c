"""Put the records of the parts of one run (`run --part I/N`) into one file, in order."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parts and where they go."""
    parser.add_argument("parts", nargs="+", type=Path, metavar="PART.jsonl", help="in the order of the questions")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Gather and print where."""
    from ragauge.io import records

    records.gather(args.parts, args.out)
    options.tell(args, args.out, out=args.out)
