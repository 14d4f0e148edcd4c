"""Compare every method on documents and questions of one's own."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from ragauge import study
from ragauge.errors import UserError
from ragauge.verbs import _options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents", type=Path, required=True, metavar="FOLDER", help="HTML, PDF, DOCX, Markdown, texts or JSON lines"
    )
    parser.add_argument(
        "--questions",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV or JSON lines: question, answers (in CSV separated by |), gold (title of the document; optional)",
    )
    parser.add_argument("--model", required=True, help="a name in the catalog, or a source such as hf:org/name")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the study: configuration and results"
    )
    parser.add_argument("--top", type=_options.count, default=10, metavar="N", help="passages for each question (10)")
    parser.add_argument("--passage-tokens", type=_options.count, default=128, metavar="N", help="of a passage (128)")
    parser.add_argument("--overlap-tokens", type=int, default=32, metavar="N", help="shared by neighbours (32)")
    parser.add_argument(
        "--retrieval", choices=study.RETRIEVALS, default="bm25", help="fused: both, by reciprocal ranks (bm25)"
    )
    parser.add_argument("--encoder", default="minilm", help="of dense retrieval: a name or a source (minilm)")
    parser.add_argument(
        "--reranker", metavar="SOURCE", help="a cross-encoder for the first passages, such as hf:org/name"
    )
    parser.add_argument("--drop-near-duplicates", action="store_true", help="of passages; else they are marked")
    parser.add_argument("--no-run", action="store_true", help="write the study without running it")


def run(args: argparse.Namespace) -> None:
    if not 0 <= args.overlap_tokens < args.passage_tokens:
        raise UserError(f"--overlap-tokens: {args.overlap_tokens} must be from 0 to below {args.passage_tokens}")
    if args.out.resolve().is_relative_to(args.documents.resolve()):
        raise UserError(f"--out: {args.out} lies in {args.documents}, whose files are the documents; choose another")
    from ragauge.experiment.launch import workflow_files
    from ragauge.study import folder, writing

    name = writing.label(args.out.resolve().name)
    config = args.out / "config.yaml"
    command = ["snakemake", "--snakefile", str(workflow_files() / "Snakefile"), "--directory", str(args.out.resolve())]
    command += ["--configfile", str(config.resolve()), "--cores", "all"]
    folder.check(args.out, (config.name, writing.DATA, writing.FOUND), shlex.join(command))
    _write(args, name)
    print(f"wrote {config}; run it again with: {shlex.join(command)}", flush=True)
    if not args.no_run:
        _start(command)
        print(f"the report: {args.out / 'reports' / name / 'index.html'}")


def _write(args: argparse.Namespace, name: str) -> None:
    """The folder of the study with its data set and configuration."""
    import yaml

    from ragauge import assets
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.experiment import schema
    from ragauge.experiment.checks import check_source
    from ragauge.study import corpus, documents, folder, indexed, questions, retrieval, writing
    from ragauge.study.relevance import Gold

    check_source(args.model, "--model")
    check_source(args.encoder, "--encoder", "encoder")
    if args.reranker:
        check_source(args.reranker, "--reranker", "cross-encoder")
    how = retrieval.Retrieval(args.retrieval, args.encoder, args.reranker)
    asked = questions.read_questions(args.questions)
    found = documents.read(args.documents)
    tokenizer = load_tokenizer(assets.resolve(args.model))
    made = corpus.build(found, tokenizer, args.passage_tokens, args.overlap_tokens, drop=args.drop_near_duplicates)
    gold = list(map(Gold(made.passages, made.titles).of, asked))
    folder.claim(args.out)
    place = indexed.Place(args.out / "database", assets.anchored(args.model))
    rankings = retrieval.rankings(how, asked, made.passages, args.top, place)
    nearest = [ranking[: args.top] for ranking in rankings[how.chosen]]
    data = args.out.resolve() / writing.DATA
    settings = writing.configuration(name, assets.anchored(args.model), data, retrieval=any(gold))
    account = {"corpus": made.counts, **found.account(), **retrieval.report(how, rankings, asked, gold, args.top)}
    written = {
        writing.DATA: writing.encoded(writing.records(asked, made.passages, nearest, gold)),
        writing.FOUND: json.dumps(account, indent=1, ensure_ascii=False).encode(),
        "config.yaml": yaml.safe_dump(settings, sort_keys=False).encode(),
    }
    folder.write(args.out, written)
    schema.parse(settings, str(args.out / "config.yaml"))
    print(corpus.described(made))
    print(f"{len(asked)} questions with {min(args.top, len(made.passages))} passages each, found by {how.chosen}")


def _start(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        raise UserError("the study was not run: it takes Snakemake: pip install 'ragauge[workflow]'")
    ended = subprocess.run(command, env=os.environ, check=False)
    if ended.returncode:
        raise UserError(f"Snakemake ended with exit code {ended.returncode}; what it has done is kept")
