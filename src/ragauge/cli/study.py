"""Compare every method on your documents and questions."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config.model import SERVED
from ragauge.errors import UserError
from ragauge.study.deadline import Deadline
from ragauge.study.settings import (
    ENDPOINT,
    JUDGE,
    RETRIEVALS,
    TOKENIZER,
    WRITER,
    StudySettings,
)

LOG = Path("logs", "workflow.log")  # of the study's folder: what Snakemake and its jobs print


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--documents",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="HTML, PDF, DOCX, Markdown, texts or JSON lines; also a single file",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help=(
            "CSV or JSON lines: question, answers (in CSV separated by |), "
            "gold (title of the document; optional)"
        ),
    )
    source.add_argument(
        "--generate-questions",
        type=options.count,
        metavar="N",
        help="have a model write N questions about passages",
    )
    add("--model", required=True, help="a name in the catalog, or a source such as hf:org/name")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the configuration and the results",
    )
    add(
        "--top",
        type=options.count,
        default=StudySettings.top,
        metavar="N",
        help="passages for each question (10)",
    )
    add(
        "--passage-tokens",
        type=options.count,
        default=StudySettings.passage_tokens,
        metavar="N",
        help="tokens of a passage (128)",
    )
    add(
        "--overlap-tokens",
        type=int,
        default=StudySettings.overlap_tokens,
        metavar="N",
        help="tokens that adjacent passages share (32)",
    )
    add(
        "--retrieval",
        metavar="HOW",
        default=StudySettings.retrieval,
        help=(
            f"{', '.join(RETRIEVALS)} (both, merged by reciprocal rank) or {SERVED}NAME, "
            "dense by a server's embeddings (bm25)"
        ),
    )
    add(
        "--encoder",
        default=StudySettings.encoder,
        help="encoder of dense retrieval: a name or a source (minilm)",
    )
    add(
        "--reranker",
        metavar="SOURCE",
        help=f"ranks the first passages again: hf:org/name, or {SERVED}NAME by a server's /rerank",
    )
    add(
        "--retrieved",
        type=Path,
        metavar="FILE",
        help="passages ranked by another system: JSON lines, BEIR's dictionary or a TREC run",
    )
    add(
        "--drop-near-duplicates",
        action="store_true",
        help="drop passages that nearly repeat another, not mark them",
    )
    chat = f"a model here, or {ENDPOINT}, that of"
    add(
        "--writer",
        metavar="SOURCE",
        help=f"writes questions: {chat} {WRITER}_URL; default: --model",
    )
    add("--attempts", type=options.count, metavar="M", help="maximum questions tried (25 for each)")
    add("--judge", metavar="SOURCE", help=f"judges answers: {chat} {JUDGE}_URL")
    add(
        "--seed",
        type=int,
        default=StudySettings.seed,
        help="seed of the choice of passages for questions (0)",
    )
    add(
        "--target-first-token",
        type=options.duration,
        metavar="TIME",
        help="recommend a method whose first token comes within this time, as in 0.5s",
    )
    options.add_device(parser)
    options.add_serve(parser)
    add(
        "--tokenizer",
        metavar="SOURCE",
        help=f"an asset whose tokenizer cuts passages for a model {SERVED}NAME ({TOKENIZER})",
    )
    add(
        "--budget",
        type=options.duration,
        metavar="TIME",
        help="end within this time, as in 30m; limits are reduced to fit",
    )
    add("--no-run", action="store_true", help="write the study without running it")


def run(args: argparse.Namespace) -> None:
    from ragauge.config.launch.files import COMMAND, workflow_command
    from ragauge.io.files import write_file
    from ragauge.study import folder, preparation, writing

    deadline = Deadline(args.budget)
    stated = StudySettings(**{key.name: getattr(args, key.name) for key in fields(StudySettings)})
    with options.ended_in_order(), options.server(args, stated.entry):
        study = stated.checked()
        name = writing.label(study.out.resolve().name)
        config = study.out / writing.CONFIG
        cores = str(study.cores or "all")
        command = workflow_command(study.out.resolve(), config.resolve(), cores)
        again = shlex.join([*surroundings(args.serve, study), *command])
        folder.check(study.out, preparation.FILES, again)
        with deadline.guarding("the study was being prepared"):
            preparation.write(study, name, deadline)
        write_file(study.out / COMMAND, again.encode())
        print(f"wrote {config}; run it again with: {again}", flush=True)
        if not study.no_run:
            _start(command, study.out, name, deadline, again)


def surroundings(server: str | None, study: StudySettings) -> list[str]:
    """Return what begins the command of a study in another shell: its server, or the address."""
    served = study.entry.served
    if served is None:
        return []
    if server:
        model = study.model.removeprefix(SERVED)
        return [sys.executable, "-m", "ragauge.study.serving", server, model]
    variable = f"{served.environment}_BASE_URL"
    url = os.environ.get(variable, "")
    return ["env", f"{variable}={url}"] if url and "@" not in url else []  # no password


def _start(command: list[str], out: Path, name: str, deadline: Deadline, again: str) -> None:
    from ragauge.config import run_progress
    from ragauge.study import budget, recommendation

    if find_spec("snakemake") is None:
        raise UserError(
            "the study was not run: it requires Snakemake: pip install 'ragauge[workflow]'"
            f", into {sys.prefix}"
        )
    os.environ[run_progress.STEPS] = "1"
    first = ["--prioritize", *recommendation.references(out, name)]
    code = deadline.run([*command, *first], out / LOG, budget.report_s(deadline.budget_s))
    if code is None:
        text = "--budget: the run was ended; the report has what is done"
        print(f"ragauge: warning: {text}; finish it with: {again}", file=sys.stderr)
        recommendation.render_finished(out, name)
    elif code:
        raise UserError(
            f"Snakemake ended with exit code {code}, see {out / LOG}; go on with: {again}"
        )
    print(f"the report: {out / 'reports' / name / 'index.html'}, after {deadline.spent_s:.0f} s")
    recommendation.print_recommended(out, name)
