"""Write the questions of a data set, checked and in their final order."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_questions(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")


def run(args: argparse.Namespace) -> None:
    from ragauge.datasets import write_examples

    questions = options.questions(args, options.configuration(args))
    examples = questions.examples()
    write_examples(args.out, examples)
    print(f"{args.out}: {len(examples)} questions of {questions.name}")
