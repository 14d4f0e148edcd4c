"""Score the predictions of a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--metric", required=True)
    parser.add_argument("--prediction-key", metavar="K", help="the field that holds the prediction")
    parser.add_argument("--answers-key", metavar="K", help="the field that holds the right answers")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.results import scoring

    options.check_name("metric", args.metric)
    keys = {"prediction_key": args.prediction_key, "answers_key": args.answers_key}
    given = {name: key for name, key in keys.items() if key is not None}
    options.show(scoring.score_file(args.file, args.metric, **given), args.json)
