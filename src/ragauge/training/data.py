"""Fine-tuning data: documents, spans, questions, and a manifest with their counts."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path

from pydantic import TypeAdapter

from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.machine import provenance
from ragauge.datasets.base.examples import read_examples
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError, validating
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256, replace_atomically
from ragauge.io.jsonl import json_lines, read_jsonl
from ragauge.methods.evidence import sft
from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat, LocalChat, RecordedChat
from ragauge.methods.evidence.sft import TrainingDocument
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.documents import ShardShare
from ragauge.pipelines.database.near_duplicates import near_duplicates
from ragauge.training.settings import ENDPOINT, TrainingDataSettings

logger = logging.getLogger(__name__)

TRAIN = "train.jsonl"
HELD_OUT = "held_out.jsonl"
MANIFEST = "manifest.json"
WRITER = "RAGAUGE_WRITER"  # prefix of the environment variables that name an endpoint
MIN_SHARE = 0.9  # of the requested documents; with fewer it would be another training
DOCUMENTS_PER_REQUEST = 4


def build(
    settings: TrainingDataSettings,
    evaluation: Mapping[Path, int | None],
    out: Path,
    threads: int | None = None,
) -> Path:
    """Write `train.jsonl`, `held_out.jsonl` and `manifest.json`; an interrupted run resumes.

    Args:
        settings: of the data.
        evaluation: files of `ragauge fetch --dataset`, and how many of their first questions are
            used (None: all); no article that contains text of their documents is trained on.
        out: folder of the files.
        threads: of a model that writes the questions here.

    Returns:
        The path of the manifest.

    Raises:
        UserError: a corpus or model is not available, or the corpora give less than `MIN_SHARE` of
            the documents.
    """
    out.mkdir(parents=True, exist_ok=True)
    seen = [
        document.text
        for path, limit in evaluation.items()
        for example in read_examples(path)[:limit]
        for document in example.documents
    ]
    articles = long_articles(settings)
    train, held_out = split(articles, seen, settings)
    questions = QuestionWriter(settings, out / "questions.partial", threads)
    held_out_passages = passages(held_out, settings, one_each=True)
    parts = {"held_out": questions.write(held_out_passages, settings.held_out_documents)}
    parts["train"] = questions.write(passages(train, settings, one_each=False), settings.documents)
    count = len(parts["train"])
    if count < MIN_SHARE * settings.documents:
        raise UserError(
            f"training data: {count} documents found, {settings.documents} requested; the corpora"
            f" hold {len(train)} articles of {settings.min_characters} characters that are not held"
            f" out, and questions were left out: {dict(questions.problems)}; name further corpora or"
            " request fewer documents"
        )
    sizes = {
        "long_articles": len(articles),
        "evaluation_documents": len(set(seen)),
        "train_articles": len(train),
        "held_out_articles": len(held_out),
        **questions.counts,
    }
    hashes = {}
    for name, documents in parts.items():
        path = out / f"{name}.jsonl"
        replace_atomically(path, json_lines(map(asdict, documents)))
        hashes[path.name] = file_sha256(path)
        sizes[f"{name}_documents"] = len(documents)
        sizes[f"{name}_questions"] = sum(len(document.spans) for document in documents)
    for corpus, number in Counter(document.corpus for document in parts["train"]).items():
        sizes[f"train_documents_of_{corpus}"] = number
    manifest = {
        "settings": settings.model_dump(),
        "counts": sizes,
        "questions_left_out": dict(questions.problems),
        "held_out_articles": [article.title for article in held_out],
        "sha256": hashes,
        "provenance": provenance(),
    }
    content = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    replace_atomically(out / MANIFEST, content.encode())
    questions.path.unlink(missing_ok=True)
    return out / MANIFEST


def read(path: Path) -> list[TrainingDocument]:
    """Return the documents of a file that `build` wrote.

    Raises:
        UserError: a wrong line, with its number.
    """
    adapter = TypeAdapter(TrainingDocument)
    documents = []
    for number, record in read_jsonl(path):
        with validating(f"{path}:{number}"):
            document = adapter.validate_python(record)
        length = len(document.text)
        spans = document.spans
        if not spans or any(not 0 <= span.start < span.stop <= length for span in spans):
            raise UserError(
                f"{path}:{number}: there must be at least one span, each within the text"
            )
        documents.append(document)
    return documents


def long_articles(settings: TrainingDataSettings) -> list[TrainingDocument]:
    """Return the long articles of the corpora, in a fixed random order, each text once."""
    by_text: dict[str, TrainingDocument] = {}
    for name in settings.corpora:
        articles = (
            TrainingDocument(f"{Path(name).name}/{number}", read.title, read.text)
            for number, read in enumerate(Corpus((name,)).documents(ShardShare()))
            if len(read.text) >= settings.min_characters
        )
        by_text |= {article.text: article for article in islice(articles, settings.corpus_articles)}
    return in_random_order(by_text.values(), settings)


def split(
    articles: Iterable[TrainingDocument], seen: Iterable[str], settings: TrainingDataSettings
) -> tuple[list[TrainingDocument], list[TrainingDocument]]:
    """Split articles into those to train on and those that are held out.

    The latter contain seen text, or are as many more as the held-out loss needs.
    """
    is_near = near_duplicates(seen, settings.near_duplicate)
    near = list[TrainingDocument]()
    rest = list[TrainingDocument]()
    for article in articles:
        (near if is_near(article.text) else rest).append(article)
    missing = max(0, settings.held_out_documents - len(near))
    return rest[missing:], near + rest[:missing]


def passages(
    articles: Iterable[TrainingDocument], settings: TrainingDataSettings, one_each: bool
) -> Iterator[TrainingDocument]:
    """Passages of the articles, with spans: in a fixed random order, the corpora in turn while they
    have any.
    """
    tokenizer = load_tokenizer(resolver.resolve(settings.model))
    documents = []
    for article in articles:
        cut = sft.cut(article, tokenizer, settings.document_tokens, settings.sentences)
        documents += in_random_order(cut, settings)[: 1 if one_each else None]
    by_corpus: dict[str, list[TrainingDocument]] = {}
    for document in in_random_order(documents, settings):
        by_corpus.setdefault(document.corpus, []).append(document)
    options = settings.spans, settings.span_sentences, settings.seed, settings.sentences
    for document in filter(None, chain.from_iterable(zip_longest(*by_corpus.values()))):
        yield sft.draw_spans(document, tokenizer, *options)


def in_random_order(
    documents: Iterable[TrainingDocument], settings: TrainingDataSettings
) -> list[TrainingDocument]:
    """Sort by ranks that are the same on every machine and do not depend on other documents."""

    def rank(document: TrainingDocument) -> bytes:
        return hashlib.sha256(f"{settings.seed}/{document.key}".encode()).digest()

    return sorted(documents, key=rank)


class QuestionWriter:
    """Has questions written, selects the usable ones, and counts the others by reason."""

    def __init__(self, settings: TrainingDataSettings, path: Path, threads: int | None) -> None:
        """`path` is of a file that records replies, so that an interrupted run repeats no request."""
        self.settings = settings
        self.path = path
        self.threads = threads
        self.counts = Counter(asked=0, kept=0)
        self.problems: Counter[str] = Counter()
        self._usable: set[str] = set()  # questions

    def write(self, documents: Iterator[TrainingDocument], count: int) -> list[TrainingDocument]:
        """Return the first `count` documents with a usable question, each with the spans that have
        one.
        """
        usable: list[TrainingDocument] = []
        groups = iter(lambda: list(islice(documents, DOCUMENTS_PER_REQUEST)), [])
        for group in groups:
            if len(usable) >= count:
                break
            spans = [(d.title, d.span_text(span)) for d in group for span in d.spans]
            replies = iter(sft.write_questions(self.writer, spans) if spans else [])
            selected = [self._select(document, replies) for document in group]
            usable += [document for document in selected if document.spans]
            logger.info("%d of %d documents have questions", min(count, len(usable)), count)
        return usable[:count]

    def _select(
        self, document: TrainingDocument, replies: Iterator[str | None]
    ) -> TrainingDocument:
        """Return a document with the spans whose reply, the next one for each, is usable."""
        spans = []
        for span in document.spans:
            reply = next(replies) or ""
            question = sft.first_question(reply)
            text = document.span_text(span)
            problem = sft.problem(question, text, document.title) if reply else "no reply"
            if not problem and question.lower() in self._usable:
                problem = "was asked before"
            self.counts["asked"] += 1
            if problem:
                self.problems[problem] += 1
            else:
                self.counts["kept"] += 1
                self._usable.add(question.lower())
                spans.append(replace(span, question=question))
        return replace(document, spans=tuple(spans))

    @cached_property
    def writer(self) -> Chat:
        """The model that writes, whose replies are recorded.

        Raises:
            UserError: it is not available.
        """
        return RecordedChat(self.model(), self.path)

    def model(self) -> Chat:
        """Load the model that writes, or find its endpoint."""
        name = self.settings.writer
        if name == ENDPOINT:
            return EndpointChat(Endpoint.from_environment(WRITER, "writes the questions"))
        lm = load_lm(name, dtype="bfloat16", threads=self.threads)
        facts = resolver.describe(name)
        template = facts["template"] or ("chat" if lm.tokenizer.chat_template else "plain")
        return LocalChat(
            lm,
            template,
            name,
            f" {template} {facts['sha256']} {digest('ragauge.methods.evidence.chat')}",
        )
