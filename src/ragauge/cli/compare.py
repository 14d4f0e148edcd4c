"""Compare two files of records question by question."""

import argparse
from pathlib import Path

from ragauge.cli import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A.jsonl")
    parser.add_argument("b", type=Path, metavar="B.jsonl")
    parser.add_argument(
        "--metrics", type=options.names, metavar="NAME,...", help="default: all that apply"
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.results import scoring

    result = scoring.compare_files(args.a, args.b, args.metrics)
    lines = [options.readable({key: value for key, value in result.items() if key != "metrics"})]
    lines += [
        "",
        f"{'metric':24} {'a':>8} {'b':>8} {'a - b':>8} {'95% interval':>18} {'p':>8} {'n':>6}",
    ]
    for name, test in result["metrics"].items():
        row = "does not apply to any shared question"
        if test["n"]:
            means = " ".join(f"{test[key]:8.3f}" for key in ("a", "b", "difference"))
            is_known = test["low"] is not None
            interval = f"[{test['low']:.3f}, {test['high']:.3f}]" if is_known else "not known"
            row = f"{means} {interval:>18} {test['p']:8.4f} {test['n']:6}"
        lines.append(f"{name:24} {row}")
    options.print_result(args, "\n".join(lines), **result)
