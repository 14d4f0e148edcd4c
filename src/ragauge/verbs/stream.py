"""Measure methods on a stream of questions whose documents come back, with a store on disk or in memory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.cost.settings import StreamSettings
    from ragauge.experiment.schema import Config

APART = {"methods", "dataset", "threads"}  # options of other groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ragauge.cost.settings import StreamSettings

    parser.add_argument("--methods", type=options.names, metavar="M,...", help="methods; with --config, variants of it")
    options.add_method_options(parser)
    options.add_questions(parser)
    options.add_materialised(parser)
    options.add_model(parser, {"engine"})
    options.add_settings(parser, StreamSettings, APART)
    options.add_timed(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="a store on disk is beside it")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    config = options.configuration(args)
    settings = _settings(args, config)
    variants = {
        name: options.method(options.variant(args, name, config), name, config, args) for name in settings.methods
    }
    model = options.model(args, config)
    options.check_timed(args, model)
    questions = options.questions(args, config)

    from ragauge.evaluation import streaming

    seed = options.first(args.seed, config.seed if config else None, 0)
    folder, allowed = args.out.absolute().parent, args.allow_load
    result = streaming.stream_model(variants, questions, model, settings, folder=folder, seed=seed, allow_load=allowed)
    options.write_json(args.out, result)
    for stream in result["streams"]:
        if stream["refused"]:
            print(
                f"ragauge: warning: {args.out}: no summary of {stream['variant']}: {stream['refused']}", file=sys.stderr
            )
        elif not args.json:
            print(_line(stream))
    if args.json:
        options.show({"out": args.out, "streams": result["streams"]}, as_json=True)


def _line(stream: dict[str, object]) -> str:
    summary, share = stream["summary"], stream["hit_rate"]
    assert isinstance(summary, dict)
    first = summary["first_token_s"]
    found = "keeps nothing" if share is None else f"found {share:.0%}"
    wait = f"first token p50 {first['p50']['value']:.3g} s, p95 {first['p95']['value']:.3g} s"
    return f"{stream['variant']}: {found}, {wait}, {summary['questions_per_s']:.3g} questions/s"


def _settings(args: argparse.Namespace, config: Config | None) -> StreamSettings:
    """The section of the configuration, if there is one, with what the options say in its place."""
    from ragauge.cost.settings import StreamSettings
    from ragauge.experiment.reading import checked_options

    made = config.stream.model_dump() if config and config.stream else {"dataset": args.dataset}
    stated = {"methods": args.methods, "threads": args.threads}
    made |= {key: value for key, value in stated.items() if value} | options.given(args, StreamSettings, set(stated))
    if not made.get("methods"):
        raise UserError("--methods: name the methods to measure, as in --methods naive,naive_reuse")
    return checked_options(StreamSettings, made)
