"""The data of fine-tuning, made once: documents, spans, questions, and a manifest with their counts."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from ragauge import assets
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.machine import provenance
from ragauge.datasets import read_examples
from ragauge.engines import load_lm
from ragauge.errors import UserError
from ragauge.evidence import sft
from ragauge.evidence.chat import Chat, EndpointChat, LocalChat, RecordedChat
from ragauge.evidence.endpoint import Endpoint
from ragauge.evidence.sft import SpanQuestion, TrainingDocument
from ragauge.io.files import file_sha256, replace_atomically
from ragauge.io.jsonl import field, objects, read_jsonl
from ragauge.retrieval.corpus import Corpus
from ragauge.retrieval.documents import Share
from ragauge.training.seen import Seen
from ragauge.training.settings import ENDPOINT, Data

logger = logging.getLogger(__name__)

TRAIN, HELD_OUT, MANIFEST = "train.jsonl", "held_out.jsonl", "manifest.json"
WRITER = "RAGAUGE_WRITER"  # prefix of the environment variables that name an endpoint
ENOUGH = 0.9  # of the documents that are asked for; with fewer it would be another training
DOCUMENTS_AT_ONCE = 4  # whose questions are written and saved together


def build(settings: Data, evaluation: Mapping[Path, int | None], out: Path, threads: int | None = None) -> Path:
    """Write `train.jsonl`, `held_out.jsonl` and `manifest.json` to a folder; an interrupted run resumes.

    Args:
        evaluation: files of `ragauge fetch --dataset`, and how many of their first questions are asked (None: all). An
            article that contains text of their documents is not trained on; the held-out loss is measured on such
            articles.

    Raises:
        UserError: a corpus or model is not available, or the corpora give less than `ENOUGH` of the documents.
    """
    out.mkdir(parents=True, exist_ok=True)
    source = Articles(settings, evaluation)
    asker = Asker(settings, out / "questions.partial", threads)
    parts = {
        HELD_OUT: asker.take(source.documents(source.held_out, one_each=True), settings.held_out_documents),
        TRAIN: asker.take(source.documents(source.train), settings.documents),
    }
    if not parts[TRAIN]:
        raise UserError(f"no question of {asker.counts['asked']} can be trained on: {dict(asker.problems)}")
    if len(parts[TRAIN]) < ENOUGH * settings.documents:
        raise UserError(
            f"training data: {len(parts[TRAIN])} documents found, {settings.documents} asked for; the corpora hold "
            f"{len(source.train)} articles of {settings.min_characters} characters or more that are not held out; "
            "name further corpora or ask for fewer documents"
        )
    for name, documents in parts.items():
        replace_atomically(out / name, _lines(documents))
    manifest = {
        "settings": settings.model_dump(),
        "counts": {**source.counts, **asker.counts, **_sizes(parts)},
        "questions_left_out": dict(asker.problems),
        "held_out_articles": [article.title for article in source.held_out],
        "sha256": {name: file_sha256(out / name) for name in parts},
        "provenance": provenance(),
    }
    replace_atomically(out / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    asker.path.unlink(missing_ok=True)
    return out / MANIFEST


def read(path: Path) -> list[TrainingDocument]:
    """The documents of a file that `build` wrote. Raises UserError naming the line on anything else."""
    return [_document(record, f"{path}:{number}") for number, record in read_jsonl(path)]


def _document(record: Mapping[str, Any], place: str) -> TrainingDocument:
    spans = objects(record, "spans", place)
    asked = tuple(
        SpanQuestion(field(s, "start", int, p), field(s, "stop", int, p), field(s, "question", str, p))
        for s, p in spans
    )
    text = field(record, "text", str, place)
    if not asked or any(not 0 <= span.start < span.stop <= len(text) for span in asked):
        raise UserError(f"{place}: there must be at least one span, each within the text")
    return TrainingDocument(field(record, "key", str, place), str(record.get("title") or ""), text, asked)


def _lines(documents: Sequence[TrainingDocument]) -> bytes:
    return "".join(json.dumps(asdict(document), ensure_ascii=False) + "\n" for document in documents).encode()


def _sizes(parts: Mapping[str, Sequence[TrainingDocument]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, documents in parts.items():
        stem = name.partition(".")[0]
        sizes |= {f"{stem}_documents": len(documents), f"{stem}_questions": sum(len(d.spans) for d in documents)}
    return sizes


# --- articles ---


@dataclass(frozen=True)
class Articles:
    """The long articles of the corpora, split by whether the evaluation contains their text."""

    settings: Data
    evaluation: Mapping[Path, int | None]

    @cached_property
    def articles(self) -> list[TrainingDocument]:
        """The long articles, in a fixed random order, each text once."""
        once = {article.text: article for article in self._read() if len(article.text) >= self.settings.min_characters}
        return sorted(once.values(), key=lambda a: _drawn(self.settings.seed, a.key))

    def _read(self) -> Iterator[TrainingDocument]:
        for name in self.settings.corpora:
            corpus = Corpus((name,), limit=self.settings.corpus_documents)
            for number, document in enumerate(corpus.documents(Share())):
                yield TrainingDocument(f"{Path(name).name}/{number}", document.title, document.text)

    @cached_property
    def evaluation_texts(self) -> list[str]:
        return [
            document.text
            for path, limit in self.evaluation.items()
            for example in read_examples(path)[:limit]
            for document in example.documents
        ]

    @cached_property
    def divided(self) -> tuple[list[TrainingDocument], list[TrainingDocument]]:
        """(articles to train on, articles held out).

        Held out are the articles of the evaluation, and as many more as the held-out loss needs.
        """
        seen = Seen(self.evaluation_texts, self.settings.near_duplicate)
        near = [seen.has(article.text) for article in self.articles]
        held = [a for a, is_near in zip(self.articles, near, strict=True) if is_near]
        rest = [a for a, is_near in zip(self.articles, near, strict=True) if not is_near]
        lacking = max(0, self.settings.held_out_documents - len(held))
        return rest[lacking:], [*held, *rest[:lacking]]

    @property
    def train(self) -> list[TrainingDocument]:
        return self.divided[0]

    @property
    def held_out(self) -> list[TrainingDocument]:
        return self.divided[1]

    def documents(self, articles: Sequence[TrainingDocument], one_each: bool = False) -> Iterator[TrainingDocument]:
        """Passages of the articles, with spans, in a fixed random order over all articles."""
        settings, tokenizer = self.settings, load_tokenizer(assets.resolve(self.settings.model))
        stretches: list[TrainingDocument] = []
        for article in articles:
            own = list(sft.cut(article, tokenizer, settings.document_tokens))
            own.sort(key=lambda document: _drawn(settings.seed, document.key))
            stretches += own[:1] if one_each else own
        for document in sorted(stretches, key=lambda d: _drawn(settings.seed, d.key)):
            yield sft.draw_spans(document, tokenizer, settings.spans, settings.span_sentences, settings.seed)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "long_articles": len(self.articles),
            "evaluation_documents": len(set(self.evaluation_texts)),
            "train_articles": len(self.train),
            "held_out_articles": len(self.held_out),
        }


def _drawn(seed: int, key: str) -> bytes:
    """A random rank that is the same on every machine and does not depend on other entries."""
    return hashlib.sha256(f"{seed}/{key}".encode()).digest()


# --- questions ---


class Asker:
    """Asks for questions, keeps the usable ones, and counts the others by reason."""

    def __init__(self, settings: Data, path: Path, threads: int | None) -> None:
        """
        Args:
            path: of a file that records replies, so that a run that was stopped asks nothing twice.
        """
        self.settings, self.path, self.threads = settings, path, threads
        self.counts: Counter[str] = Counter(asked=0, kept=0)
        self.problems: Counter[str] = Counter()
        self._known: set[str] = set()  # questions that were kept

    def take(self, documents: Iterator[TrainingDocument], count: int) -> list[TrainingDocument]:
        """The first `count` documents with a usable question, each with the spans that have one."""
        taken: list[TrainingDocument] = []
        while len(taken) < count and (group := list(islice(documents, DOCUMENTS_AT_ONCE))):
            spans = [(document.title, document.span_text(span)) for document in group for span in document.spans]
            replies = iter(sft.write_questions(self.writer, spans) if spans else [])
            asked = [self._kept(document, [next(replies) for _ in document.spans]) for document in group]
            taken += [document for document in asked if document.spans]
            logger.info("%d of %d documents have questions", min(count, len(taken)), count)
        return taken[:count]

    def _kept(self, document: TrainingDocument, replies: Sequence[str | None]) -> TrainingDocument:
        spans = []
        for span, reply in zip(document.spans, replies, strict=True):
            question = sft.first_question(reply or "")
            problem = "no reply" if reply is None else self._problem(question, document, span)
            self.counts["asked"] += 1
            if problem:
                self.problems[problem] += 1
            else:
                self.counts["kept"] += 1
                self._known.add(question.lower())
                spans.append(replace(span, question=question))
        return replace(document, spans=tuple(spans))

    def _problem(self, question: str, document: TrainingDocument, span: SpanQuestion) -> str | None:
        found = sft.problem(question, document.span_text(span), document.title)
        return found or ("was asked before" if question.lower() in self._known else None)

    @cached_property
    def writer(self) -> Chat:
        """The model that writes. Raises UserError if it is not available."""
        return RecordedChat(self.model(), self.path)

    def model(self) -> Chat:
        """Load the model that writes, or find its endpoint."""
        name = self.settings.writer
        if name == ENDPOINT:
            return EndpointChat(Endpoint.from_environment(WRITER, "writes the questions"))
        lm = load_lm(name, dtype="bfloat16", threads=self.threads)
        template = assets.describe(name)["template"] or ("chat" if lm.tokenizer.chat_template else "plain")
        return LocalChat(lm, template, name)
