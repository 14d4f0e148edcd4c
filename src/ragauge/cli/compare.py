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
    import pandas as pd

    from ragauge.results import scoring

    result = scoring.compare_files(args.a, args.b, args.metrics)
    table = pd.DataFrame.from_dict(result["metrics"], orient="index")
    about = options.readable({key: value for key, value in result.items() if key != "metrics"})
    text = table.to_string(float_format="{:.4f}".format, na_rep="not known")
    options.print_result(args, f"{about}\n\n{text}", **result)
