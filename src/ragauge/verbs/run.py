"""Answer the questions of a data set with a method; resumes an interrupted run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.datasets import Example
    from ragauge.evaluation.runner import Job
    from ragauge.experiment.schema import Config, ModelEntry, Served


FAILED = 3  # the exit code if questions have no answer
SHOWN = 3  # keys of questions that failed for the same reason


class _Gather(argparse.Action):
    """--gather: with it no method, data set and model are required."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            action.required = action.dest == "out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", required=True, help="a method; with --config, one of its variants")
    options.add_method_options(parser)
    options.add_questions(parser)
    options.add_materialised(parser)
    parser.add_argument("--limit", type=options.count, metavar="N", help="answer the first N questions only")
    parser.add_argument("--part", type=options.part, metavar="I/N", help="answer part I of N, counted from 0")
    parser.add_argument(
        "--gather",
        action=_Gather,
        nargs="+",
        type=Path,
        metavar="PART.jsonl",
        help="answer nothing; put the records of all parts, in the order of the questions, into one file",
    )
    options.add_model(parser)
    parser.add_argument("--finder", metavar="MODEL", help="the model that finds the evidence that --model answers from")
    parser.add_argument(
        "--max-new-tokens",
        type=options.count,
        metavar="N",
        help="maximum tokens of an answer (default: the data set's, or 100)",
    )
    parser.add_argument(
        "--batch",
        type=options.batch,
        metavar="N",
        help="answer N questions together, or auto: as many as memory allows and the processor gains from (default: 1)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the records of another run")
    parser.add_argument(
        "--document-store",
        type=Path,
        metavar="FOLDER",
        help="store the keys and values of documents in this folder, also for later runs",
    )
    parser.add_argument(
        "--document-store-gb", type=options.size, metavar="X", help="size limit of that folder in GB (default: 4)"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="ask the questions again that failed, and keep the other records"
    )
    parser.add_argument("--allow-failed", action="store_true", help="exit code 0, not 3, if questions failed")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.gather:
        from ragauge.io import records

        records.gather(args.gather, args.out)
        options.tell(args, args.out, out=args.out)
        return 0
    config = options.configuration(args)
    job, served = _job(args, config)
    from ragauge.evaluation import runner

    gigabytes = options.first(args.document_store_gb, config.generation.documents_gb if config else None, 4.0)
    store = args.document_store
    folder = runner.DocumentFolder(store, int(gigabytes * 1e9)) if store and gigabytes else None
    batch = options.first(args.batch, config.generation.batch if config else None, 1)
    with options.ended_in_order():
        loaded = runner.Engines(args.threads, folder, batch, served)
        runner.run(job, loaded, overwrite=args.overwrite, retry_failed=args.retry_failed)
    return _summary(args)


def _summary(args: argparse.Namespace) -> int:
    """Print what became of the questions; the exit code."""
    from ragauge.io import records

    made = records.outcome(args.out)
    lines = [f"{args.out}: {made.answered} answered, {made.failed} failed"]
    lines += _reasons(made.reasons)
    lines += ["ask them again with --retry-failed"] if made.failed else []
    result = {"out": args.out, "answered": made.answered, "failed": made.failed, "reasons": made.reasons}
    options.tell(args, "\n".join(lines), **result)
    return FAILED if made.failed and not args.allow_failed else 0


def _reasons(reasons: dict[str, list[str]]) -> list[str]:
    """A line for each kind of reason: those that differ in numbers alone are one kind."""
    kinds = dict[str, list[str]]()
    for reason in reasons:
        kinds.setdefault(re.sub(r"\d+", "0", reason), []).append(reason)
    lines = []
    for alike in kinds.values():
        keys = [key for reason in alike for key in reasons[reason]]
        first = ", the first" if len(alike) > 1 else ""
        lines.append(f"  {len(keys)} failed{first}: {alike[0]} ({_some(keys)})")
    return lines


def _some(keys: Sequence[str]) -> str:
    """The first few keys of questions."""
    return ", ".join(keys[:SHOWN]) + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")


def _job(args: argparse.Namespace, config: Config | None) -> tuple[Job, Served | None]:
    """The job that the options name, and how its model is reached if it is behind a server."""
    name, method = options.method(args, args.method, config)
    model = options.model(args, config)
    questions = options.questions(args, config)
    limit = options.first(args.limit, options.limit(args, config))
    method = model.adapt(method, f"{args.method} on {args.model}")
    examples = _part(questions.examples(limit), args.part)
    from ragauge.evaluation import inputs
    from ragauge.evaluation.runner import Job

    configured = config.max_new_tokens(args.dataset) if config else questions.dataset.max_new_tokens
    new_tokens = options.first(args.max_new_tokens, configured, 100)
    finder = _finder(args.finder, model, config)
    specification = inputs.specification(name, method, questions, model, new_tokens, finder)
    return Job(specification, method, examples, args.method, args.out), model.served


def _finder(name: str | None, model: ModelEntry, config: Config | None) -> ModelEntry | None:
    """The model of --finder, which overrides the configuration's."""
    from ragauge.experiment.checks import check_source
    from ragauge.experiment.schema import ModelEntry

    if name is None:
        return config.models[model.finder] if config and model.finder else None
    if config and name in config.models:
        return config.models[name]
    return ModelEntry(source=check_source(name, "--finder"))


def _part(examples: list[Example], part: tuple[int, int] | None) -> list[Example]:
    """The questions of a part: consecutive ones, in parts of similar size."""
    if part is None:
        return examples
    number, of = part
    return examples[number * len(examples) // of : (number + 1) * len(examples) // of]
