"""Fetch and verify an asset, all that a configuration reads, or the questions of a data set."""

import argparse
import os
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.io.redaction import redacted_values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = "hf:org/name[@revision], pypi:name==version, https://... or path:..."
    parser.add_argument("asset", nargs="?", help=f"a name in the catalog, {forms}")
    options.add_questions(parser, required=False)
    options.add_set(parser, "an option of the data set, KEY=VALUE or dataset.KEY=VALUE")
    parser.add_argument(
        "--lock",
        action="store_true",
        help="write what --config reads to FILE.lock.json next to it, which holds later runs to it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=(
            "the questions of --dataset, one JSON line each; of an asset: its source, hashes and "
            "path"
        ),
    )


def run(args: argparse.Namespace) -> None:
    if bool(args.asset) == bool(args.dataset or args.config):
        raise UserError("fetch: give either an asset or --dataset NAME or --config FILE.yaml")
    if args.lock and (args.asset or args.dataset):
        raise UserError(
            "--lock: only valid with --config alone; one asset is pinned where it is named"
        )
    if args.dataset is None and (args.data or args.set or args.seed is not None):
        raise UserError("--data, --set, --seed: only valid with --dataset")
    if args.asset:
        _fetch_asset(args)
    elif args.dataset:
        _fetch_questions(args)
    else:
        _fetch_all(args)


def _fetch_asset(args: argparse.Namespace) -> None:
    from ragauge.assets import resolver

    manifest = redacted_values(resolver.describe(args.asset, offline=False))
    if args.out:
        options.write_json(args.out, manifest)
    options.print_result(args, manifest["path"], **manifest)


def _fetch_questions(args: argparse.Namespace) -> None:
    from ragauge.datasets.base.examples import write_examples

    if args.out is None:
        raise UserError("--out: required with --dataset, a FILE.jsonl for the questions")
    questions = options.questions(args, options.configuration(args), is_subject=True)
    examples = questions.examples()
    write_examples(args.out, examples)
    text = f"{args.out}: {len(examples)} questions of {questions.name}"
    options.print_result(args, text, out=args.out, questions=len(examples), dataset=questions.name)


def _fetch_all(args: argparse.Namespace) -> None:
    from ragauge.assets import pins
    from ragauge.config import sources

    if args.out:
        raise UserError(
            "--out: only valid with an asset or --dataset; --lock writes down what a configuration reads"
        )
    if args.lock:  # a new lock does not depend on the old one
        config = loading.parse(loading.read(args.config), str(args.config))
        os.environ.pop(pins.VARIABLE, None)
    else:
        config = loading.load(args.config)
    fetched = sources.fetch(config, lock=args.lock)
    counted = {"assets": fetched.assets, "data sets": fetched.datasets, "corpora": fetched.corpora}
    text = (
        ", ".join(f"{len(some)} {what}" for what, some in counted.items() if some)
        or "nothing to fetch"
    )
    path = pins.lock_path(args.config) if args.lock else None
    if path:
        pins.write(path, fetched)
    options.print_result(
        args,
        f"{path}: {text}" if path else text,
        lock=path,
        **fetched.model_dump(exclude_none=True),
    )
