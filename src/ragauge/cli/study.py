"""Compare every method on your documents and questions."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ragauge.cli import _options as options
from ragauge.cli._deadline import Deadline
from ragauge.config import loading, run_progress
from ragauge.config.checks import check_source
from ragauge.config.dtypes import with_dtype
from ragauge.config.launch.files import workflow_command
from ragauge.config.model import SERVED, ModelEntry
from ragauge.config.sources import check_served
from ragauge.cost.hardware import AUTO, device_here
from ragauge.errors import UserError
from ragauge.io.files import write_file
from ragauge.methods.base import making
from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat, RecordedChat
from ragauge.study import budget, folder, settings, writing
from ragauge.study.questions import StudyQuestion, read_questions

if TYPE_CHECKING:
    from ragauge.study.passages import PassageCorpus

# begins the environment variables that name an endpoint, as in `ragauge sft data`
WRITER = "RAGAUGE_WRITER"
JUDGE = "RAGAUGE_JUDGE"  # as in `ragauge judge`
ENDPOINT = "endpoint"
TOKENIZER = "smollm2-135m-instruct"
RECOMMENDED = "recommended.yaml"  # the configuration of what the page recommends
LOG = Path("logs", "workflow.log")  # of the study's folder: what Snakemake and its jobs print
GENERATED = "generated.jsonl"
REPLIES = "replies.jsonl"  # of the study's folder
# of a budget, after which no batch begins; while there are too few
WRITING_SHARE = 0.35
WRITING_AT_LAST = 0.5
LOAD_WINDOW_S = 1.0  # in which the load of other processes is measured
# for a report when time runs out; at most this share
RESERVE_S = 20
RESERVE_STARTS = 6
RESERVE_SHARE = 0.25

# settings, questions, files, retrieval.json
Draft = tuple[dict[str, Any], int, dict[str, bytes], dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    documents = "HTML, PDF, DOCX, Markdown, texts or JSON lines; also a single file"
    add("--documents", type=Path, required=True, metavar="FOLDER", help=documents)
    source = parser.add_mutually_exclusive_group(required=True)
    text = "CSV or JSON lines: question, answers (in CSV separated by |), gold (title of the document; optional)"
    source.add_argument("--questions", type=Path, metavar="FILE", help=text)
    text = "have a model write N questions about passages"
    source.add_argument("--generate-questions", type=options.count, metavar="N", help=text)
    add("--model", required=True, help="a name in the catalog, or a source such as hf:org/name")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the configuration and the results",
    )
    add(
        "--top", type=options.count, default=10, metavar="N", help="passages for each question (10)"
    )
    add(
        "--passage-tokens",
        type=options.count,
        default=128,
        metavar="N",
        help="tokens of a passage (128)",
    )
    add(
        "--overlap-tokens",
        type=int,
        default=32,
        metavar="N",
        help="tokens that adjacent passages share (32)",
    )
    fused = "fused: both, merged by reciprocal rank (bm25)"
    add("--retrieval", choices=settings.RETRIEVALS, default="bm25", help=fused)
    add(
        "--encoder",
        default="minilm",
        help="encoder of dense retrieval: a name or a source (minilm)",
    )
    add(
        "--reranker",
        metavar="SOURCE",
        help="a cross-encoder for the first passages, such as hf:org/name",
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
    add("--seed", type=int, default=0, help="seed of the choice of passages for questions (0)")
    budget = "end within this time, as in 30m; limits are reduced to fit"
    text = "recommend a method whose first token comes within this time, as in 0.5s"
    add("--target-first-token", type=options.duration, metavar="TIME", help=text)
    options.add_device(parser)
    options.add_serve(parser)
    text = f"an asset whose tokenizer cuts passages for a model {SERVED}NAME ({TOKENIZER})"
    add("--tokenizer", metavar="SOURCE", help=text)
    add("--budget", type=options.duration, metavar="TIME", help=budget)
    add("--no-run", action="store_true", help="write the study without running it")


def run(args: argparse.Namespace) -> None:
    with options.ended_in_order(), options.server(args, _entry(args)):
        _study(args)


def _study(args: argparse.Namespace) -> None:
    deadline = Deadline(args.budget)
    _check(args)
    name = writing.label(args.out.resolve().name)
    config = args.out / writing.CONFIG
    # jobs side by side would wait for one server
    cores = "1" if args.model.startswith(SERVED) else "all"
    command = workflow_command(args.out.resolve(), config.resolve(), cores)
    folder.check(
        args.out, (writing.CONFIG, writing.DATA, writing.RETRIEVAL, GENERATED), shlex.join(command)
    )
    with deadline.guarding("the study was being prepared"):
        reserve_s = _write(args, name, deadline)
    print(f"wrote {config}; run it again with: {shlex.join(command)}", flush=True)
    if not args.no_run:
        _start(command, args.out, name, deadline, reserve_s)


def _check(args: argparse.Namespace) -> None:
    """Check the options, and spell the names of models as the catalog does."""
    if not 0 <= args.overlap_tokens < args.passage_tokens:
        raise UserError(
            f"--overlap-tokens: {args.overlap_tokens} must be from 0 to below {args.passage_tokens}"
        )
    if args.out.resolve().is_relative_to(args.documents.resolve()):
        raise UserError(
            f"--out: {args.out} lies in {args.documents}, whose files are the documents; choose another"
        )
    for option in ("writer", "attempts"):
        if getattr(args, option) is not None and args.generate_questions is None:
            raise UserError(f"--{option}: requires --generate-questions")
    for option in ("encoder", "reranker", "model", "writer", "judge"):
        source = getattr(args, option)
        is_endpoint = source == ENDPOINT and option in ("writer", "judge")
        if source and not is_endpoint and not (option == "model" and source.startswith(SERVED)):
            kind = {"encoder": "encoder", "reranker": "cross-encoder"}.get(option, "model")
            setattr(args, option, check_source(source, f"--{option}", kind))
    if args.model.startswith(SERVED):
        check_served(_entry(args))
    elif args.tokenizer:
        raise UserError(f"--tokenizer: only for a model {SERVED}NAME; {args.model} has its own")
    if args.device.startswith("cuda") and device_here(AUTO) == "cpu":
        raise UserError(f"--device: {args.device!r}: torch finds no CUDA device here; known: cpu")


def _entry(args: argparse.Namespace) -> ModelEntry:
    served = args.model.startswith(SERVED)
    return (
        ModelEntry(source=args.model)
        if served
        else ModelEntry(source=args.model, device=args.device)
    )


def _methods(model: ModelEntry) -> list[str]:
    """Choose the methods of a study that the model's engine runs."""
    runs = []
    for name, stated in writing.METHODS.items():
        with suppress(UserError):
            options = {"method": name, **stated}
            model.adapt(making.make(options.pop("method"), **options), name)
            runs.append(name)
    return runs


def _check_count(count: int) -> None:
    """Say before the run what so few questions cannot tell."""
    from ragauge.report.page import numbers

    if count < numbers.FEWEST:
        text = f"{count} questions: the report recommends nothing below {numbers.FEWEST}"
    elif provisional := numbers.provisional(count):
        text = f"the recommendation will be provisional: {provisional}"
    else:
        return
    print(f"ragauge: warning: {text}", file=sys.stderr)


def _write(args: argparse.Namespace, name: str, deadline: Deadline) -> float:
    """Write the study's folder with its data set and configuration; return the seconds reserved for
    a report.
    """
    settings, count, made, account = _prepare(args, name, deadline)
    place = str(args.out / writing.CONFIG)
    cuts = tuple[str, ...]()
    reserve_s = 0.0

    def files() -> dict[str, bytes]:
        return {
            **made,
            writing.RETRIEVAL: json.dumps(account, indent=1, ensure_ascii=False).encode(),
        }

    folder.write(args.out, files())  # which the configuration and the estimate read
    loading.parse(settings, place)
    # nobody knows its speed: a budget ends the run, and what is done is reported
    if args.model.startswith(SERVED):
        reserve_s = min(RESERVE_S, RESERVE_SHARE * (args.budget or 0.0))
    elif args.budget or not args.no_run:
        settings, cuts, reserve_s = _limit(settings, count, place, deadline)
    account |= {"budget": {"seconds": args.budget, "left_out": cuts}} if args.budget else {}
    comments = "".join(f"# left out to fit --budget: {cut}\n" for cut in cuts)
    config = (comments + yaml.safe_dump(settings, sort_keys=False)).encode()
    folder.write(args.out, {**files(), writing.CONFIG: config})
    return reserve_s


def _limit(
    settings: dict[str, Any], count: int, place: str, deadline: Deadline
) -> tuple[dict[str, Any], tuple[str, ...], float]:
    """Print the estimate within the budget; return the limited configuration, the limits, the
    seconds for a report.
    """
    from ragauge.measure.protocols.estimate import duration, estimate, machine_for, time_text

    machine = machine_for(loading.parse(settings, place))

    def middle_s(settings: Mapping[str, Any]) -> float:
        wall = estimate(loading.parse(settings, place), machine).wall
        return (wall.likely + wall.high) / 2

    limited = settings
    cuts = tuple[str, ...]()
    reserve_s = 0.0
    if deadline.budget_s:
        reserve_s = min(
            RESERVE_S + RESERVE_STARTS * machine.start_s, RESERVE_SHARE * deadline.budget_s
        )
        available = deadline.left_s - reserve_s
        try:
            limited, cuts = budget.fit(settings, count, middle_s, available)
        except UserError as error:
            raise UserError(
                f"--budget: {duration(deadline.budget_s)} are too short: {error}"
            ) from None
        print(f"{duration(available)} left: {budget.size(limited, count)}")
        print("\n".join(f"left out: {cut}" for cut in cuts) or "nothing is left out")
    print(time_text(estimate(loading.parse(limited, place), machine)), flush=True)
    return limited, cuts, reserve_s


def _prepare(args: argparse.Namespace, name: str, deadline: Deadline) -> Draft:
    """Cut the passages, read or generate the questions, and retrieve passages for them."""
    from ragauge.assets import resolver
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.study import documents, passages, retrieval

    how = retrieval.Retrieval(args.retrieval, args.encoder, args.reranker)
    questions = read_questions(args.questions) if args.questions else []
    sources = documents.read(args.documents)
    own = args.tokenizer or (TOKENIZER if args.model.startswith(SERVED) else args.model)
    tokenizer = load_tokenizer(resolver.resolve(own))
    made = passages.build(
        sources, tokenizer, args.passage_tokens, args.overlap_tokens, drop=args.drop_near_duplicates
    )
    print(made, flush=True)
    if pages := sources.left_out.values():
        share = sum(pages) / len(pages)
        print(
            f"left out of web pages: {share:.0%} of their characters (navigation, footers, controls)"
        )
    folder.claim(args.out)
    files = dict[str, bytes]()
    generation = dict[str, Any]()
    if not questions:
        questions, files, generation = _generated(args, made, deadline)
    gold = list(retrieval.gold_passages(questions, made.passages, made.originals))
    rankings = retrieval.rankings(how, questions, made.passages, args.top, args.out / "embeddings")
    nearest = [ranking[: args.top] for ranking in rankings[how.chosen]]
    model, judge = (
        one if one in (None, ENDPOINT) or one.startswith(SERVED) else resolver.absolute(one)
        for one in (args.model, args.judge)
    )
    data = args.out.resolve() / writing.DATA
    _check_count(len(questions))
    entry = _entry(args).model_copy(update={"source": model})
    settings = writing.configuration(
        name,
        entry.model_dump(include={"source", "dtype", "device"}, exclude_defaults=True),
        data,
        methods=_methods(entry),
        retrieval=any(gold),
        seed=args.seed,
        judge=judge,
        target_first_token_s=args.target_first_token,
    )
    skipped = {
        name: getattr(sources, name) for name in ("skipped", "read_in_part", "left_out", "not_read")
    }
    account = {"corpus": made.counts, **skipped, **generation}
    account |= retrieval.report(how, rankings, questions, gold, args.top)
    lines = writing.json_lines(writing.records(questions, made.passages, nearest, gold))
    unlabelled = sum(not question.answers for question in questions)
    if unlabelled:
        print(f"{unlabelled} of {len(questions)} questions have no known answer (`answers`)")
    if unlabelled == len(questions):
        warning = "no question has a known answer: quality is agreement with the full prompt, which may be wrong"
        print(f"ragauge: warning: {warning}", file=sys.stderr)
    count = f"{len(questions)} question{'s' * (len(questions) > 1)}"
    print(
        f"{count} with {min(args.top, len(made.passages))} passages each, retrieved by {how.chosen}"
    )
    return settings, len(questions), {**files, writing.DATA: lines}, account


def _generated(
    args: argparse.Namespace, made: PassageCorpus, deadline: Deadline
) -> tuple[list[StudyQuestion], dict[str, bytes], dict[str, Any]]:
    """Have a model write questions: (the questions, the file that holds them, an account of them)."""
    from ragauge.study import generation

    endpoint = (
        Endpoint.from_environment(WRITER, "writes the questions")
        if args.writer == ENDPOINT
        else None
    )
    reader = _local(args.model)
    writer = (
        reader
        if args.writer in (None, args.model)
        else EndpointChat(endpoint)
        if endpoint
        else _local(args.writer)
    )
    generated = generation.generate(
        args.generate_questions,
        made.passages,
        *(RecordedChat(chat, args.out / REPLIES) for chat in (writer, reader)),
        most=args.attempts or generation.ATTEMPTS * args.generate_questions,
        seed=args.seed,
        until=deadline.at(WRITING_SHARE),
        at_last=deadline.at(WRITING_AT_LAST),
    )
    print(generated, flush=True)
    account = {
        **generated.account(),
        "writer": writer.name,
        "reader": reader.name,
        "seed": args.seed,
    }
    lines = writing.json_lines(written.to_json() for written in generated.questions)
    return (
        [written.question for written in generated.questions],
        {GENERATED: lines},
        {"generation": account},
    )


def _local(source: str) -> Chat:
    """Load a model on this machine, in the data type that the study's jobs have. If other processes
    are busy it has one thread: threads that wait for each other are many times slower then.
    """
    from ragauge.cost import machine

    with machine.competing_load() as load:
        time.sleep(LOAD_WINDOW_S)
    threads = 1 if load.share > machine.MAX_LOAD else None
    return options.local_chat(
        source, dtype=with_dtype(ModelEntry(source=source)).dtype, threads=threads
    )


def _start(command: list[str], out: Path, name: str, deadline: Deadline, reserve_s: float) -> None:
    if shutil.which(command[0]) is None:
        raise UserError(
            "the study was not run: it requires Snakemake: pip install 'ragauge[workflow]'"
        )
    os.environ[run_progress.STEPS] = "1"
    code = deadline.run(command, out / LOG, reserve_s)
    if code is None:
        print(
            "ragauge: warning: --budget: the run was ended; the report has what is done",
            file=sys.stderr,
        )
        _report_what_is_done(out, name)
    elif code:
        raise UserError(
            f"Snakemake ended with exit code {code}, see {out / LOG}; run it again to go on"
        )
    print(f"the report: {out / 'reports' / name / 'index.html'}, after {deadline.spent_s:.0f} s")
    _recommend(out, name)


def _recommend(out: Path, name: str) -> None:
    """Print what the page recommends, and write its configuration, which a deployment can keep."""
    from ragauge.report.page import numbers
    from ragauge.results.runs import Runs

    for group in numbers.groups(Runs(out / "results" / name, loading.load(out / writing.CONFIG))):
        row = numbers.recommended(group)
        if row is None:
            print(
                f"nothing is recommended: {group['withheld'] or 'no variant is within the target'}"
            )
            continue
        path = out / RECOMMENDED
        text = f"{row['name']}: {_reason(row, group)}"
        settings = yaml.safe_load((out / writing.CONFIG).read_bytes())
        settings["methods"] = {row["name"]: settings["methods"][row["name"]]}
        for section in {"latency", "judge"} & settings.keys():
            settings[section]["methods"] = [row["name"]]
        how = json.loads((out / writing.RETRIEVAL).read_bytes())["retrieval"]
        passages = f"passages: the first {how['top']} by {how['chosen']}, dense retrieval by {how['encoder']}"
        write_file(
            path, f"# {text}\n# {passages}\n{yaml.safe_dump(settings, sort_keys=False)}".encode()
        )
        print(f"recommended: {text}\nits configuration: {path}")


def _reason(row: dict[str, Any], group: dict[str, Any]) -> str:
    from ragauge.report.page import numbers

    quality = row["quality"]
    kind = group["cost"]
    words = [
        f"{group['metric']} {quality['mean']:.3f} [{quality['low']:.3f}, {quality['high']:.3f}]"
    ]
    if kind:
        name, unit = numbers.COSTS[kind]
        words.append(f"{name}: {numbers.wait(row, kind, group['reused_by']):.3g} {unit}")
        words.append(f"at most {group['targets'][kind]:.3g} {unit}")
    return "; ".join([*words, *filter(None, [group["provisional"]])])


def _report_what_is_done(out: Path, name: str) -> None:
    """Render the page of a run that was ended, which names what is missing."""
    from ragauge.report.figures.writing import render, write_provenance
    from ragauge.report.page import page
    from ragauge.results.runs import Runs

    runs = Runs(out / "results" / name, loading.load(out / writing.CONFIG))
    reports = out / "reports" / name
    for item in runs.config.item_names():
        render(item, runs, reports)
    write_provenance(runs, reports)
    page.write(runs, reports)
