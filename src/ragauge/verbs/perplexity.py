"""Compare files of sequence records: perplexity or latency of each, and retrieved against random neighbours."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.jsonl", help="records of `ragauge pipeline`")
    parser.add_argument(
        "--base", type=Path, metavar="FILE.jsonl", help="what each is compared with, sequence by sequence"
    )
    parser.add_argument("--random", type=Path, metavar="FILE.jsonl", help="the control: random neighbours' records")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write it there as well")


def run(args: argparse.Namespace) -> None:
    from ragauge.records import replace_atomically
    from ragauge.retro import comparison

    result = {}
    for path in args.files:
        result[str(path)] = found = comparison.summary(path)
        if args.base:
            found["against_base"] = comparison.difference(path, args.base)
        if args.random:
            found["control"] = comparison.control(path, args.random)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(args.out, (json.dumps(result, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(result))
        return
    for name, found in result.items():
        print(name)
        for key, value in found.items():
            print(f"  {key:24} {json.dumps(value) if isinstance(value, dict) else value}")
