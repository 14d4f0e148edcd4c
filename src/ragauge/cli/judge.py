"""Have a language model judge whether evidence supports the answers, or the answers; resumes an
interrupted run.

The judge is the model behind the OpenAI-compatible endpoint that RAGAUGE_JUDGE_URL,
RAGAUGE_JUDGE_MODEL and RAGAUGE_JUDGE_KEY describe, or with --model one on this machine. Missing and
unusable answers are recorded as such, and the next run asks for them again.
"""

import argparse
from pathlib import Path

from ragauge.cli import _options as options
from ragauge.config.checks import check_source
from ragauge.cost.hardware import DTYPES
from ragauge.errors import UserError
from ragauge.io import records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "records",
        type=Path,
        metavar="FILE.jsonl",
        help="records of a method; for evidence, of one that finds any",
    )
    add(
        "--of",
        choices=("evidence", "faithfulness", "answers"),
        default="evidence",
        help=(
            "what is judged (evidence); the documents of --examples are what evidence is faithful "
            "to, and answers go by"
        ),
    )
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
    from ragauge.measure.judging import judge_records
    from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat
    from ragauge.methods.evidence.judge import drawn

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
    judgements = judge_records(chat, sample, args.of, args.examples, args.out)
    judged = sum(judgement.label is not None for judgement in judgements)
    counts = {"judged": judged, "not_judged": len(judgements) - judged}
    text = f"{args.out}: {judged} judged, {counts['not_judged']} not"
    options.print_result(args, text, out=args.out, **counts)
