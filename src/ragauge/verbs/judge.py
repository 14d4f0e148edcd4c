"""Have a language model judge whether the evidence of records supports the answers; resumes an interrupted run.

The judge is the model behind the OpenAI-compatible endpoint that RAGAUGE_JUDGE_URL, RAGAUGE_JUDGE_MODEL and
RAGAUGE_JUDGE_KEY describe, or with --model one on this machine. Missing and unusable answers are
recorded as such and asked for again by the next run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cost.hardware import DEVICES, DTYPES
from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.evidence.judge import Judge, Judgement
    from ragauge.io.records import Record

ENVIRONMENT = "RAGAUGE_JUDGE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", type=Path, metavar="FILE.jsonl", help="records of a method that looks for evidence")
    parser.add_argument("--model", help="a judge on this machine: a catalogued model, a source or a folder")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--device", default="cpu", choices=DEVICES)
    parser.add_argument(
        "--threads", type=options.count, metavar="N", help="threads of a local judge; default: all cores"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="one line per record")


def run(args: argparse.Namespace) -> None:
    """Judge what the file does not hold yet."""
    from ragauge.io import records

    asked = records.read(args.records)
    if all(record.evidence is None for record in asked):
        raise UserError(f"{args.records}: holds no evidence to judge; its method looks for none")
    done = _judge(_judge_of(args), asked, args.out)
    failed = sum(judgement.label is None for judgement in done)
    print(f"{args.out}: {len(done) - failed} judged, {failed} not")


def _judge_of(args: argparse.Namespace) -> Judge:
    from ragauge.evidence.endpoint import Endpoint
    from ragauge.evidence.judge import EndpointJudge, LocalJudge

    if args.model:
        from ragauge.engines import load_lm
        from ragauge.evaluation.inputs import template_of

        lm = load_lm(args.model, dtype=args.dtype, device=args.device, threads=args.threads)
        return LocalJudge(args.model, lm, template_of(args.model))
    endpoint = Endpoint.from_environment(ENVIRONMENT)
    if endpoint is None:
        raise UserError(f"no judge: set {ENVIRONMENT}_URL and {ENVIRONMENT}_MODEL, or name a local one with --model")
    return EndpointJudge(endpoint)


def _judge(judge: Judge, asked: list[Record], out: Path) -> list[Judgement]:
    """Judgements in the records' order, each safe on disk before the next question; in the end rewritten in order."""
    from ragauge.io.files import replace_atomically
    from ragauge.io.progress import bar

    known = _known(out)
    done: list[Judgement] = []
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            for record in bar("judging", "question", iterable=asked):
                judgement = _one(judge, record, known)
                file.write("\n" + _line(judgement))  # after a line that a kill may have torn
                file.flush()
                done.append(judgement)
        replace_atomically(out, "".join(_line(judgement) for judgement in done).encode())
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from error
    return done


def _one(judge: Judge, record: Record, known: dict[str, Judgement]) -> Judgement:
    from ragauge.evidence.judge import Judgement, asking, digest, judge_one

    evidence = [piece.text for piece in record.evidence or ()]
    asked = digest(judge, asking(record.question, record.answers, evidence))
    before = known.get(record.key)
    if before and before.label and before.asked_sha256 == asked:
        return before
    if record.status == "failed":
        return Judgement(record.key, judge.name, asked, reason="the question itself failed")
    return judge_one(judge, record.key, record.question, record.answers, evidence)


def _known(out: Path) -> dict[str, Judgement]:
    """The judgements of a file, finished or not, the last of each question; lines that are none are passed over."""
    from ragauge.evidence.judge import Judgement

    found = {}
    for line in out.read_bytes().split(b"\n") if out.is_file() else ():
        try:
            judgement = Judgement(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        found[judgement.key] = judgement
    return found


def _line(judgement: Judgement) -> str:
    from dataclasses import asdict

    fields: dict[str, Any] = {k: v for k, v in asdict(judgement).items() if v is not None}
    return json.dumps(fields, ensure_ascii=False) + "\n"
