"""Score the predictions of a file, or the sequences of `ragauge piperag run`."""

import argparse
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.cli import _options as options
from ragauge.errors import UserError

# of sequences, whose files have no predictions; of generated text it is the latency
PERPLEXITY = "perplexity"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE.jsonl", help="several only with perplexity"
    )
    parser.add_argument(
        "--metric", required=True, help="a metric; perplexity: of sequences, or their latency"
    )
    field = "the field that holds the"
    parser.add_argument(
        "--prediction-key",
        default="prediction",
        metavar="K",
        help=f"{field} prediction (prediction)",
    )
    parser.add_argument(
        "--answers-key", default="answers", metavar="K", help=f"{field} right answers (answers)"
    )
    parser.add_argument(
        "--base", type=Path, metavar="FILE.jsonl", help="sequences to compare each file's with"
    )
    parser.add_argument(
        "--random",
        type=Path,
        metavar="FILE.jsonl",
        help="sequences of the control: random neighbours",
    )


def run(args: argparse.Namespace) -> None:
    from ragauge.results import comparison, scoring

    result: dict[str, Any] = {}
    if args.metric == PERPLEXITY:
        for path in args.files:
            result[str(path)] = measured = comparison.summary(path)
            if args.base:
                measured["against_base"] = comparison.difference(path, args.base)
            if args.random:
                measured["control"] = comparison.control(path, args.random)
        text = "\n".join(
            f"{name}\n{options.readable(measured)}" for name, measured in result.items()
        )
    else:
        registry.module_name("metric", args.metric, "--metric")
        if len(args.files) > 1 or args.base or args.random:
            raise UserError(
                f"--metric {args.metric}: takes one file; several, --base and --random go with perplexity"
            )
        keys = {"prediction_key": args.prediction_key, "answers_key": args.answers_key}
        result = scoring.score_file(args.files[0], args.metric, **keys)
        text = options.readable(result)
    options.print_result(args, text, **result)
