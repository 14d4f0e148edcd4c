"""Have a language model judge whether evidence supports the answers, or the answers; resumes an interrupted run.

The judge is the model behind the OpenAI-compatible endpoint that RAGAUGE_JUDGE_URL, RAGAUGE_JUDGE_MODEL and
RAGAUGE_JUDGE_KEY describe, or with --model one on this machine. Missing and unusable answers are
recorded as such, and the next run asks for them again.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.cost.hardware import DTYPES
from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.evidence.chat import Chat
    from ragauge.evidence.judge import Judgement
    from ragauge.io.records import Record


ENVIRONMENT = "RAGAUGE_JUDGE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "records",
        type=Path,
        metavar="FILE.jsonl",
        help="records of a method; where evidence is judged, of one that finds any",
    )
    parser.add_argument(
        "--of",
        choices=("evidence", "answers"),
        default="evidence",
        help="what is judged; answers by the passages of --examples (evidence)",
    )
    options.add_materialised(parser)
    parser.add_argument("--model", help="a local judge: a name in the catalog, a source or a folder")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    options.add_device(parser)
    parser.add_argument(
        "--threads", type=options.count, metavar="N", help="threads of a local judge; default: all cores"
    )
    parser.add_argument(
        "--limit", type=options.count, metavar="N", help="judge N of the records, drawn at random; default: all"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="one line per record")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.evidence.judge import drawn
    from ragauge.io import records

    sample = drawn(records.read(args.records), args.limit)
    if (args.of == "answers") != (args.examples is not None):
        raise UserError("--examples: goes with --of answers, whose passages it has")
    if args.of == "evidence" and all(record.evidence is None for record in sample):
        raise UserError(f"{args.records}: has no evidence to judge; its method does not look for any")
    done = _judge(_chat(args), sample, args.out, _passages(args.examples) if args.examples else None)
    failed = sum(judgement.label is None for judgement in done)
    options.tell(
        args,
        f"{args.out}: {len(done) - failed} judged, {failed} not",
        out=args.out,
        judged=len(done) - failed,
        not_judged=failed,
    )


def _chat(args: argparse.Namespace) -> Chat:
    from ragauge.evidence.chat import EndpointChat, LocalChat
    from ragauge.evidence.endpoint import Endpoint

    if args.model:
        from ragauge.engines import load_lm
        from ragauge.evaluation.inputs import template_of
        from ragauge.experiment.checks import check_source

        args.model = check_source(args.model, "--model")
        lm = load_lm(args.model, dtype=args.dtype, device=args.device, threads=args.threads)
        return LocalChat(lm, template_of(args.model), args.model)
    return EndpointChat(Endpoint.from_environment(ENVIRONMENT, "judges, unless --model names a local judge"))


def _passages(examples: Path) -> dict[str, list[str]]:
    """The texts of each question's documents."""
    from ragauge.datasets import read_examples

    return {example.key: [document.text for document in example.documents] for example in read_examples(examples)}


def _judge(
    judge: Chat, sample: list[Record], out: Path, passages: dict[str, list[str]] | None = None
) -> list[Judgement]:
    """Judgements in the records' order, each safe on disk before the next question; in the end rewritten in order."""
    from ragauge.io.files import locked, replace_atomically
    from ragauge.io.progress import bar

    done: list[Judgement] = []
    try:
        with locked(out):
            known = _known(out)
            with out.open("a", encoding="utf-8") as file:
                for record in bar("judging", "question", iterable=sample):
                    judgement = _one(judge, record, known, passages)
                    file.write("\n" + _line(judgement))  # after a line that a kill may have cut off
                    file.flush()
                    if judgement is not known.get(record.key):
                        os.fsync(file.fileno())
                    done.append(judgement)
            replace_atomically(out, "".join(_line(judgement) for judgement in done).encode())
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from error
    return done


def _one(judge: Chat, record: Record, known: dict[str, Judgement], passages: dict[str, list[str]] | None) -> Judgement:
    """Judge the record's evidence, or its answer by the passages."""
    from ragauge.evidence import judge as judging

    if passages is None:
        evidence = [piece.text for piece in record.evidence or ()]
        inquiry = judging.about_evidence(record.key, record.question, record.answers, evidence)
    else:
        shown = passages.get(record.key, [])
        inquiry = judging.about_answer(record.key, record.question, shown, record.prediction)
    return judging.judge(judge, inquiry, known.get(record.key), failed=record.status == "failed")


def _known(out: Path) -> dict[str, Judgement]:
    """The judgements of a file, finished or not, the last of each question; torn lines are passed over.

    Raises:
        UserError: the file holds something else.
    """
    from ragauge.evidence.judge import Judgement

    judgements = {}
    for number, line in enumerate(out.read_bytes().split(b"\n") if out.is_file() else (), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if line.startswith(b'{"'):
                continue  # torn
            value = None
        if not isinstance(value, dict) or not {"key", "judge"} <= set(value) or not isinstance(value["key"], str):
            raise UserError(f"{out}:{number}: holds no judgements; choose another --out")
        with suppress(TypeError):  # fields of another version
            judgements[value["key"]] = Judgement(**value)
    return judgements


def _line(judgement: Judgement) -> str:
    from dataclasses import asdict

    fields: dict[str, Any] = {k: v for k, v in asdict(judgement).items() if v is not None}
    return json.dumps(fields, ensure_ascii=False) + "\n"
