"""Compare files of sequence records: perplexity or latency of each, and retrieved against random neighbours."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.jsonl", help="records of `ragauge pipeline`")
    parser.add_argument(
        "--base", type=Path, metavar="FILE.jsonl", help="records to compare each file with, sequence by sequence"
    )
    parser.add_argument("--random", type=Path, metavar="FILE.jsonl", help="records of the control: random neighbours")
    options.add_json(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write it to this file")


def run(args: argparse.Namespace) -> None:
    from ragauge.results import comparison

    result = {}
    for path in args.files:
        result[str(path)] = found = comparison.summary(path)
        if args.base:
            found["against_base"] = comparison.difference(path, args.base)
        if args.random:
            found["control"] = comparison.control(path, args.random)
    if args.out:
        options.write_json(args.out, result)
    if args.json:
        print(json.dumps(result))
        return
    for name, found in result.items():
        print(name)
        for key, value in found.items():
            print(f"  {key:24} {json.dumps(value) if isinstance(value, dict) else value}")
