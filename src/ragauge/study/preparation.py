"""The files of a study: passages are cut, questions read or generated, passages retrieved."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import yaml

from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.config import loading
from ragauge.config.dtypes import with_dtype
from ragauge.config.model import SERVED, ModelEntry
from ragauge.errors import UserError
from ragauge.io.jsonl import read_object
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
from ragauge.study.passages import PassageCorpus
from ragauge.study.questions import StudyQuestion, read_questions
from ragauge.study.settings import ENDPOINT, WRITER, StudySettings

GENERATED = "generated.jsonl"
REPLIES = "replies.jsonl"  # of models while questions are generated
FILES = (writing.CONFIG, writing.DATA, writing.PASSAGES, writing.RETRIEVAL, GENERATED)
# of a budget, after which no batch of questions begins; while there are too few
WRITING_SHARE = 0.35
WRITING_AT_LAST = 0.5
READ = ("documents", "names")  # of the sources, next to what was not read


def write(study: StudySettings, name: str, deadline: Deadline) -> None:
    """Write a study's folder: its data set, its retrieval and its configuration.

    Args:
        study: the options, checked.
        name: of the run.
        deadline: what does not fit until then is left out of the configuration.
    """
    folder.claim(study.out)
    _check_documents(study)
    files, account, settings = _draft(study, name, deadline)
    path = study.out / writing.CONFIG
    # which the configuration and the estimate read
    folder.write(study.out, {**files, writing.RETRIEVAL: _json(account)})
    loading.parse(settings, str(path))
    comments = ""
    if study.budget:
        questions = len(account["questions"])
        settings, cuts = budget.limit(settings, questions, path, deadline, study.cores)
        comments = "".join(f"# left out to fit --budget: {cut}\n" for cut in cuts)
        account["budget"] = {"seconds": study.budget, "left_out": cuts}
    config = (comments + yaml.safe_dump(settings, sort_keys=False)).encode()
    folder.write(study.out, {**files, writing.RETRIEVAL: _json(account), writing.CONFIG: config})


def _json(account: Mapping[str, Any]) -> bytes:
    return json.dumps(account, indent=1, ensure_ascii=False).encode()


def _check_documents(study: StudySettings) -> None:
    """Raise UserError if the folder has a study of other documents, whose results it would mix up."""
    path = study.out / writing.RETRIEVAL
    former = read_object(path).get("documents") if path.is_file() else None
    if former not in (None, str(study.documents.resolve())):
        raise UserError(f"--out: {study.out} has a study of {former}; choose another --out")


def _draft(
    study: StudySettings, name: str, deadline: Deadline
) -> tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]:
    """Prepare the experiment of a study, before a budget limits it.

    Returns: the content of each file, an account of documents and retrieval for retrieval.json, and
        the configuration.
    """
    reranker = study.reranker and _absolute(study.reranker)
    file = str(study.retrieved.resolve()) if study.retrieved else None
    how = retrieval.Retrieval(study.retrieval, _absolute(study.encoder), reranker, file)
    questions = read_questions(study.questions) if study.questions else []
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
    for path, omission in islice(sources.omissions.items(), documents.MAX_NAMED):
        print(f"left out of {path}: {omission}")
    files = dict[str, bytes]()
    unread = {key: value for key, value in vars(sources).items() if key not in READ}
    account = {"documents": str(study.documents.resolve()), "corpus": corpus.counts, **unread}
    if not questions:
        questions, files, account["generation"] = _generated(study, corpus, deadline)
    gold = list(retrieval.gold_passages(questions, corpus.passages, corpus.originals))
    searcher = retrieval.Searcher(how, corpus.passages, study.out / writing.EMBEDDINGS)
    retrieved = None
    if study.retrieved:
        retrieved = ranked_passages.read(study.retrieved, questions, corpus.passages, study.top)
    texts = [question.question for question in questions]
    rankings = searcher.rankings(texts, study.top, retrieved)
    nearest = [ranking[: study.top] for ranking in rankings[how.chosen]]
    account |= retrieval.report(how, rankings, questions, gold, study.top, searcher.seconds)
    lines = writing.records(questions, corpus.passages, nearest, gold)
    files[writing.DATA] = writing.json_lines(lines)
    files[writing.PASSAGES] = writing.json_lines(
        {"id": ranked_passages.passage_id(one), "title": one.document, "text": one.text}
        for one in corpus.passages
    )
    _print_questions(questions, min(study.top, len(corpus.passages)), how.chosen)
    return files, account, _settings(study, name, any(gold))


def _settings(study: StudySettings, name: str, has_gold: bool) -> dict[str, Any]:
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
        quality = "quality is agreement with the full prompt, which may be wrong"
        warnings.append(f"no question has a known answer: {quality}")
    for text in filter(None, warnings):
        print(f"ragauge: warning: {text}", file=sys.stderr)
    plural = "s" if count > 1 else ""
    print(f"{count} question{plural} with {passages} passages each, retrieved by {retriever}")


def _generated(
    study: StudySettings, corpus: PassageCorpus, deadline: Deadline
) -> tuple[list[StudyQuestion], dict[str, bytes], dict[str, Any]]:
    """Have a model write questions.

    Returns: the questions, the file that holds them, an account of them.
    """
    assert study.generate_questions is not None
    writer: Chat | None = None
    if study.writer == ENDPOINT:
        writer = EndpointChat(Endpoint.from_environment(WRITER, "writes the questions"))
    reader = _local_chat(study.model)
    if writer is None:
        is_reader = study.writer in (None, study.model)
        writer = reader if is_reader else _local_chat(str(study.writer))
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
    names = {"writer": writer.name, "reader": reader.name, "seed": study.seed}
    lines = writing.json_lines(spot.to_json() for spot in generated.questions)
    questions = [spot.study_question for spot in generated.questions]
    return questions, {GENERATED: lines}, {**generated.account(), **names}


def _local_chat(source: str) -> Chat:
    """Load a model on this machine, in the data type that the study's jobs have."""
    return local_chat(source, dtype=with_dtype(ModelEntry(source=source)).dtype)
