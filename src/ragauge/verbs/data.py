"""Write the questions of a data set, checked and in their final order."""

from __future__ import annotations

import argparse
from pathlib import Path

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_questions(parser)
    options.add_set(parser, "an option of the data set, KEY=VALUE or dataset.KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.datasets import write_examples

    args.set = [pair if pair.startswith("dataset.") else f"dataset.{pair}" for pair in args.set]
    questions = options.questions(args, options.configuration(args))
    examples = questions.examples()
    write_examples(args.out, examples)
    told = f"{args.out}: {len(examples)} questions of {questions.name}"
    options.tell(args, told, out=args.out, questions=len(examples), dataset=questions.name)
