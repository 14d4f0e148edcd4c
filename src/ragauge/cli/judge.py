"""Have a language model judge whether evidence supports the answers, or the answers; resumes an
interrupted run.

The judge is the model behind the OpenAI-compatible endpoint that RAGAUGE_JUDGE_URL,
RAGAUGE_JUDGE_MODEL and RAGAUGE_JUDGE_KEY describe, or with --model one on this machine. Missing and
unusable answers are recorded as such, and the next run asks for them again.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from ragauge.cli import _options as options
from ragauge.config.checks import check_source
from ragauge.cost.hardware import DTYPES
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.files import locked, os_errors_as_user_errors, replace_atomically
from ragauge.io.progress import bar
from ragauge.io.records import Record
from ragauge.methods.evidence import judge as judging
from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat
from ragauge.methods.evidence.judge import Inquiry, Judgement, drawn, judge


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "records",
        type=Path,
        metavar="FILE.jsonl",
        help="records of a method; for evidence, of one that finds any",
    )
    what = "what is judged (evidence); the documents of --examples are what evidence is faithful to, and answers go by"
    add("--of", choices=("evidence", "faithfulness", "answers"), default="evidence", help=what)
    options.add_examples(parser)
    add("--model", help="a local judge: a name in the catalog, a source or a folder")
    add("--dtype", default="float32", choices=DTYPES)
    options.add_device(parser)
    options.add_threads(parser, "threads of a local judge; default: all cores")
    add(
        "--limit",
        type=options.count,
        metavar="N",
        help="judge N of the records, drawn at random; default: all",
    )
    add("--out", type=Path, required=True, metavar="FILE.jsonl", help="one line per record")


def run(args: argparse.Namespace) -> None:
    sample = drawn(records.read(args.records), args.limit)
    if (args.of == "evidence") != (args.examples is None):
        raise UserError(
            "--examples: goes with --of faithfulness or answers, whose documents it has"
        )
    if args.of != "answers" and all(record.evidence is None for record in sample):
        raise UserError(
            f"{args.records}: has no evidence to judge; its method does not look for any"
        )
    if args.model is None:
        endpoint = Endpoint.from_environment(
            "RAGAUGE_JUDGE", "judges, unless --model names a local judge"
        )
        chat: Chat = EndpointChat(endpoint)
    else:
        from ragauge.measure import inputs

        source = check_source(args.model, "--model")
        where = {"device": args.device, "threads": args.threads}
        chat = inputs.local_chat(source, dtype=args.dtype, **where)
    judgements = _judge(chat, sample, args.out, _inquiries(args.of, args.examples))
    judged = sum(judgement.label is not None for judgement in judgements)
    counts = {"judged": judged, "not_judged": len(judgements) - judged}
    text = f"{args.out}: {judged} judged, {counts['not_judged']} not"
    options.print_result(args, text, out=args.out, **counts)


def _inquiries(of: str, examples: Path | None) -> Callable[[Record], list[Inquiry]]:
    from ragauge.datasets.base.examples import read_examples

    passages = {
        e.key: [d.text for d in e.documents] for e in (read_examples(examples) if examples else ())
    }

    def about(record: Record) -> list[Inquiry]:
        key = record.key
        texts = passages.get(record.key, [])
        if of == "answers":
            return [judging.about_answer(key, record.question, texts, record.prediction)]
        evidence = [piece.text for piece in record.evidence or ()]
        support = judging.about_evidence(key, record.question, record.answers, evidence)
        return (
            [support, judging.about_faithfulness(key, texts, evidence)]
            if texts and evidence
            else [support]
        )

    return about


def _judge(
    chat: Chat, sample: list[Record], out: Path, about: Callable[[Record], list[Inquiry]]
) -> list[Judgement]:
    """Judge the records in their order; the file has each judgement before the next request, and
    those known before.
    """
    judgements: dict[tuple[str, str | None], Judgement] = {}
    with os_errors_as_user_errors(out), locked(out):
        known = _read(out)
        for record in bar("judging", "question", iterable=sample):
            for inquiry in about(record):
                place = inquiry.key, inquiry.aspect
                judgements[place] = judge(
                    chat, inquiry, known.get(place), failed=record.status == "failed"
                )
                if judgements[place] is not known.get(place):
                    replace_atomically(out, _lines(known | judgements))
        replace_atomically(out, _lines(judgements))
    return list(judgements.values())


def _lines(judgements: dict[tuple[str, str | None], Judgement]) -> bytes:
    return b"".join(judgement.line() for judgement in judgements.values())


def _read(out: Path) -> dict[tuple[str, str | None], Judgement]:
    """Read the judgements of a file by key and aspect. Raises UserError if the file holds something
    else.
    """
    judgements: dict[tuple[str, str | None], Judgement] = {}
    for number, line in enumerate(out.read_bytes().splitlines() if out.is_file() else (), start=1):
        try:
            judgement = Judgement.model_validate_json(line)
        except ValidationError:
            raise UserError(f"{out}:{number}: holds no judgements; choose another --out") from None
        judgements[judgement.key, judgement.aspect] = judgement
    return judgements
