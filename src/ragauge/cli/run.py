"""Answer the questions of a data set with a method; resumes an interrupted run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.config.checks import check_source
from ragauge.config.experiment import AnswerJob, Config
from ragauge.config.model import ModelEntry, Served
from ragauge.config.reading import checked_options
from ragauge.config.schema import Generation
from ragauge.errors import UserError
from ragauge.io import records

if TYPE_CHECKING:
    from ragauge.measure.runner import Job

FAILED = 3  # the exit code if questions have no answer
SHOWN = 3  # reasons, and questions that failed for one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--method", help="a method; with --config, one of its variants")
    options.add_answered_questions(parser, required=False)
    add("--limit", type=options.count, metavar="N", help="answer the first N questions only")
    add("--part", type=options.part, metavar="I/N", help="answer part I of N, counted from 0")
    add(
        "--gather",
        nargs="+",
        type=Path,
        metavar="PART.jsonl",
        help=(
            "answer nothing; put the records of all parts, in the order of the questions, into "
            "one file"
        ),
    )
    add(
        "--finder",
        metavar="MODEL",
        help="the model that finds evidence for --model, or chooses tokens for it",
    )
    options.add_settings(parser, Generation, {"documents_gb"})
    add("--overwrite", action="store_true", help="replace the records of another run")
    add(
        "--document-store",
        type=Path,
        metavar="FOLDER",
        help="store keys and values of documents here, for later runs",
    )
    add(
        "--document-store-gb",
        type=options.amount,
        metavar="X",
        help="size limit of that folder in GB (4)",
    )
    add(
        "--retry-failed",
        action="store_true",
        help="ask failed questions again (prefix_tree, context_pilot: all)",
    )
    add("--allow-failed", action="store_true", help="exit code 0, not 3, if questions failed")
    add("--out", type=Path, required=True, metavar="FILE.jsonl")


def run(args: argparse.Namespace) -> int:
    if args.gather:
        records.gather(args.gather, args.out)
        options.print_result(args, args.out, out=args.out)
        return 0
    required = ("method", "dataset", "model")
    missing = [f"--{name}" for name in required if getattr(args, name) is None]
    if missing:
        raise UserError(f"run: give {', '.join(missing)}")
    config = options.configuration(args)
    stated = options.given(args, Generation)
    configured = config.generation if config else Generation(documents_gb=4)
    generation = checked_options(Generation, configured.model_dump() | stated)
    job, served = _job(
        args, config, generation.max_new_tokens if "max_new_tokens" in stated else None
    )
    from ragauge.measure import runner
    from ragauge.measure.engines import DocumentFolder, Engines

    gigabytes = options.first(args.document_store_gb, generation.documents_gb)
    store = args.document_store
    folder = DocumentFolder(store, int(gigabytes * 1e9)) if store and gigabytes else None
    with options.ended_in_order():
        engines = Engines(args.threads, folder, generation.batch, served)
        runner.run(job, engines, overwrite=args.overwrite, retry_failed=args.retry_failed)
    answered, reasons = records.outcome(args.out)
    failed = sum(map(len, reasons.values()))
    lines = [f"{args.out}: {answered} answered, {failed} failed", *_reasons(reasons)]
    lines += ["ask them again with --retry-failed"] if failed else []
    options.print_result(
        args, "\n".join(lines), out=args.out, answered=answered, failed=failed, reasons=reasons
    )
    return FAILED if failed and not args.allow_failed else 0


def _reasons(reasons: dict[str, list[str]]) -> list[str]:
    """Describe each of the most frequent reasons in a line."""
    frequent = sorted(reasons.items(), key=lambda reason: -len(reason[1]))[:SHOWN]
    return [
        f"  {len(keys)} failed: {reason} ({', '.join(keys[:SHOWN])}{', ...' * (len(keys) > SHOWN)})"
        for reason, keys in frequent
    ]


def _job(
    args: argparse.Namespace, config: Config | None, new_tokens: int | None
) -> tuple[Job, Served | None]:
    """Return the job that the options name, and how its model is reached if it is behind a server."""
    method = options.method(args, args.method, config)
    if args.part and method.sequential():
        raise UserError(
            f"--part: answers of {args.method} depend on the questions before them; answer all in one run"
        )
    model = options.model(args, config)
    questions = options.questions(args, config)
    limit = options.first(
        args.limit, config and config.limit(AnswerJob(args.dataset, args.model, args.method))
    )
    examples = questions.examples(limit)
    if args.part:  # consecutive questions, in parts of similar size
        number, parts = args.part
        examples = examples[number * len(examples) // parts : (number + 1) * len(examples) // parts]
    from ragauge.measure import inputs
    from ragauge.measure.runner import Job
    from ragauge.methods.evidence.account import read_account

    configured = config.max_new_tokens(args.dataset) if config else questions.dataset.max_new_tokens
    label = args.finder or (model.finder if method.finds else None)
    finder = config.models.get(label) if label and config else None
    if args.finder and not finder:
        finder = ModelEntry(source=check_source(args.finder, "--finder"))
    method = model.adapt(
        method, f"{args.method} on {args.model}", read_account((finder or model).source)
    )
    tokens = options.first(new_tokens, configured, 100)
    specification = inputs.specification(method, questions, model, tokens, finder)
    return Job(specification, method, examples, args.method, args.out), model.served
