"""The files of a study: passages are cut, questions read or generated, passages retrieved."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PureWindowsPath

import yaml

from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.config import loading
from ragauge.config.dtypes import with_dtype
from ragauge.config.model import SERVED, ModelEntry
from ragauge.cost import machine
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject, json_lines, read_object
from ragauge.measure.inputs import local_chat
from ragauge.methods.base import making
from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat, RecordedChat
from ragauge.study import (
    budget,
    documents,
    folder,
    generation,
    passages,
    ranked_passages,
    recommendation,
    retrieval,
    writing,
)
from ragauge.study.deadline import Deadline
from ragauge.study.documents import MAX_NAMED
from ragauge.study.passages import PassageCorpus
from ragauge.study.questions import StudyQuestion, read_questions
from ragauge.study.settings import ENDPOINT, WRITER, StudySettings

GENERATED = "generated.jsonl"
REPLIES = "replies.jsonl"  # of models while questions are generated
FILES = (writing.CONFIG, writing.DATA, writing.PASSAGES, writing.RETRIEVAL, GENERATED)
# of a budget, after which no batch of questions begins; while there are too few
WRITING_SHARE = 0.35
WRITING_AT_LAST = 0.5
LOAD_WINDOW_S = 1.0  # in which the load of other processes is measured


@dataclass(frozen=True)
class Draft:
    """The experiment of a study, before a budget limits it."""

    settings: JsonObject  # the configuration
    questions: int
    files: dict[str, bytes]  # name -> content
    account: JsonObject  # of documents and retrieval, for retrieval.json

    def with_account(self) -> dict[str, bytes]:
        content = json.dumps(self.account, indent=1, ensure_ascii=False).encode()
        return {**self.files, writing.RETRIEVAL: content}


def write(study: StudySettings, name: str, deadline: Deadline) -> None:
    """Write a study's folder: its data set, its retrieval and its configuration.

    Args:
        study: the options, checked.
        name: of the run.
        deadline: what does not fit until then is left out of the configuration.
    """
    folder.check_writable(study.out)
    _check_documents(study)
    draft = _draft(study, name, deadline)
    path = study.out / writing.CONFIG
    folder.write(study.out, draft.with_account())  # which the configuration and the estimate read
    loading.parse(draft.settings, str(path))
    settings = draft.settings
    comments = ""
    if study.budget:
        settings, cuts = budget.limit(settings, draft.questions, path, deadline, study.cores)
        comments = "".join(f"# left out to fit --budget: {cut}\n" for cut in cuts)
        draft.account["budget"] = {"seconds": study.budget, "left_out": cuts}
    config = (comments + yaml.safe_dump(settings, sort_keys=False)).encode()
    folder.write(study.out, {**draft.with_account(), writing.CONFIG: config})


def _check_documents(study: StudySettings) -> None:
    """Raise UserError if the folder has a study of other documents, whose results it would mix up."""
    path = study.out / writing.RETRIEVAL
    former = read_object(path).get("documents") if path.is_file() else None
    if former not in (None, str(study.documents.resolve())):
        raise UserError(f"--out: {study.out} has a study of {former}; choose another --out")


def _draft(study: StudySettings, name: str, deadline: Deadline) -> Draft:
    reranker = study.reranker and _absolute(study.reranker)
    file = str(study.retrieved.resolve()) if study.retrieved else None
    how = retrieval.Retrieval(study.retrieval, _absolute(study.encoder), reranker, file)
    questions = read_questions(study.questions) if study.questions else []
    there = {path.name for path in (study.documents, *study.documents.rglob("*"))}
    if not any(name.lower().endswith(documents.RECORDS) for name in there):  # of any titles
        golds = (PureWindowsPath(question.gold or "").name for question in questions)
        files_of_golds = [gold for gold in golds if gold.lower().endswith(documents.SUFFIXES)]
        retrieval.check_gold(files_of_golds, there)
    sources = documents.read(study.documents)
    tokenizer = load_tokenizer(resolver.resolve(study.passage_tokenizer))
    corpus = passages.build(
        sources,
        tokenizer,
        study.passage_tokens,
        study.overlap_tokens,
        drop=study.drop_near_duplicates,
    )
    print(corpus, flush=True)
    for path, omission in islice(sources.unread["omissions"].items(), MAX_NAMED):
        print(f"left out of {path}: {omission}")
    folder.claim(study.out)
    files = dict[str, bytes]()
    account = {
        "documents": str(study.documents.resolve()),
        "corpus": corpus.counts,
        **sources.unread,
    }
    if not questions:
        questions, files, account["generation"] = _generated(study, corpus, deadline)
    gold = list(retrieval.gold_passages(questions, corpus.passages, corpus.originals))
    searcher = retrieval.Searcher(how, corpus.passages, study.out / writing.EMBEDDINGS)
    retrieved = (
        ranked_passages.read(study.retrieved, questions, corpus.passages, study.top)
        if study.retrieved
        else None
    )
    texts = [question.question for question in questions]
    rankings = searcher.rankings(texts, study.top, retrieved)
    nearest = [ranking[: study.top] for ranking in rankings[how.chosen]]
    account |= retrieval.report(how, rankings, questions, gold, study.top, searcher.seconds)
    files[writing.DATA] = json_lines(writing.records(questions, corpus.passages, nearest, gold))
    files[writing.PASSAGES] = json_lines(
        {
            "id": ranked_passages.passage_id(passage),
            "title": passage.document,
            "text": passage.text,
        }
        for passage in corpus.passages
    )
    _print_questions(questions, min(study.top, len(corpus.passages)), how.chosen)
    return Draft(_settings(study, name, any(gold)), len(questions), files, account)


def _settings(study: StudySettings, name: str, has_gold: bool) -> JsonObject:
    entry = study.entry.model_copy(update={"source": _absolute(study.model)})
    return writing.configuration(
        name,
        entry.model_dump(include={"source", "dtype", "device"}, exclude_defaults=True),
        study.out.resolve() / writing.DATA,
        methods=_methods(entry),
        retrieval=has_gold,
        seed=study.seed,
        judge=_absolute(study.judge) if study.judge else None,
        target_first_token_s=study.target_first_token,
    )


def _absolute(source: str) -> str:
    is_elsewhere = source == ENDPOINT or source.startswith(SERVED)
    return source if is_elsewhere else resolver.absolute(source)


def _methods(model: ModelEntry) -> list[str]:
    """Choose the methods of a study that the model's engine runs."""
    names = []
    for name, stated in writing.METHODS.items():
        with suppress(UserError):
            options = {"method": name, **stated}
            model.adapt(making.make(options.pop("method"), **options), name)
            names.append(name)
    return names


def _print_questions(questions: list[StudyQuestion], passages: int, retriever: str) -> None:
    """Say how many questions there are, and what they cannot tell."""
    count = len(questions)
    warnings = [recommendation.warning(count)]
    unlabelled = sum(not question.answers for question in questions)
    if unlabelled:
        print(f"{unlabelled} of {count} questions have no known answer (`answers`)")
    if unlabelled == count:
        warnings.append(
            "no question has a known answer: quality is agreement with the full prompt, which may"
            " be wrong"
        )
    for text in filter(None, warnings):
        print(f"ragauge: warning: {text}", file=sys.stderr)
    plural = "s" if count > 1 else ""
    print(f"{count} question{plural} with {passages} passages each, retrieved by {retriever}")


def _generated(
    study: StudySettings, corpus: PassageCorpus, deadline: Deadline
) -> tuple[list[StudyQuestion], dict[str, bytes], JsonObject]:
    """Have a model write questions.

    Returns: the questions, the file that holds them, an account of them.
    """
    assert study.generate_questions is not None
    endpoint = None
    if study.writer == ENDPOINT:
        endpoint = Endpoint.from_environment(WRITER, "writes the questions")
    reader = _local_chat(study.model)
    writer = reader
    if endpoint:
        writer = EndpointChat(endpoint)
    elif study.writer not in (None, study.model):
        writer = _local_chat(study.writer or "")
    replies = study.out / REPLIES
    generated = generation.generate(
        study.generate_questions,
        corpus.passages,
        RecordedChat(writer, replies),
        RecordedChat(reader, replies),
        max_attempts=study.attempts or generation.ATTEMPTS * study.generate_questions,
        seed=study.seed,
        until=deadline.at(WRITING_SHARE),
        at_last=deadline.at(WRITING_AT_LAST),
    )
    print(generated, flush=True)
    lines = json_lines(written.to_json() for written in generated.questions)
    questions = [written.question for written in generated.questions]
    account = {
        **generated.account(),
        "writer": writer.name,
        "reader": reader.name,
        "seed": study.seed,
    }
    return questions, {GENERATED: lines}, account


def _local_chat(source: str) -> Chat:
    """Load a model on this machine, in the data type that the study's jobs have.

    If other processes are busy it has one thread: threads that wait for each other are many times
    slower then.
    """
    with machine.competing_load() as load:
        time.sleep(LOAD_WINDOW_S)
    threads = 1 if load.share > machine.MAX_LOAD else None
    return local_chat(source, dtype=with_dtype(ModelEntry(source=source)).dtype, threads=threads)
