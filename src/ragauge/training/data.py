"""Fine-tuning data: documents, spans, questions, and a manifest with their counts."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.machine import provenance
from ragauge.datasets.base.examples import read_examples
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256, replace_atomically
from ragauge.io.jsonl import field, objects, read_jsonl
from ragauge.methods.evidence import sft
from ragauge.methods.evidence.chat import Chat, Endpoint, EndpointChat, LocalChat, RecordedChat
from ragauge.methods.evidence.sft import SpanQuestion, TrainingDocument
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.documents import Share
from ragauge.training.settings import ENDPOINT, Data

if TYPE_CHECKING:
    from datasketch import MinHash

logger = logging.getLogger(__name__)

TRAIN = "train.jsonl"
HELD_OUT = "held_out.jsonl"
MANIFEST = "manifest.json"
WRITER = "RAGAUGE_WRITER"  # prefix of the environment variables that name an endpoint
MIN_SHARE = 0.9  # of the requested documents; with fewer it would be another training
DOCUMENTS_PER_REQUEST = 4
PIECE_WORDS = 100
SHINGLE_WORDS = 5  # of pieces of text that are compared, and of their parts
PERMUTATIONS = 128  # of a MinHash signature


def build(
    settings: Data, evaluation: Mapping[Path, int | None], out: Path, threads: int | None = None
) -> Path:
    """Write `train.jsonl`, `held_out.jsonl` and `manifest.json` to a folder; an interrupted run
    resumes.

    `evaluation`: files of `ragauge fetch --dataset`, and how many of their first questions are used
    (None: all); no article that contains text of their documents is trained on.

    Raises UserError: a corpus or model is not available, or the corpora give less than `MIN_SHARE`
    of the documents.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = ((read_examples(path), limit) for path, limit in evaluation.items())
    seen = [
        document.text
        for examples, limit in files
        for one in examples[:limit]
        for document in one.documents
    ]
    articles = long_articles(settings)
    train, held_out = split(articles, seen, settings)
    questions = Questions(settings, out / "questions.partial", threads)
    parts = {
        HELD_OUT: questions.write(
            passages(held_out, settings, one_each=True), settings.held_out_documents
        ),
        TRAIN: questions.write(passages(train, settings, one_each=False), settings.documents),
    }
    if not parts[TRAIN]:
        raise UserError(
            f"no question of {questions.counts['asked']} can be trained on: {dict(questions.problems)}"
        )
    if len(parts[TRAIN]) < MIN_SHARE * settings.documents:
        hold = f"the corpora hold {len(train)} articles of {settings.min_characters} characters that are not held out"
        counts = f"{len(parts[TRAIN])} documents found, {settings.documents} requested; {hold}"
        raise UserError(f"training data: {counts}; name further corpora or request fewer documents")
    for name, documents in parts.items():
        lines = (json.dumps(asdict(document), ensure_ascii=False) + "\n" for document in documents)
        replace_atomically(out / name, "".join(lines).encode())
    sizes = {
        "long_articles": len(articles),
        "evaluation_documents": len(set(seen)),
        "train_articles": len(train),
        "held_out_articles": len(held_out),
        **questions.counts,
    }
    for stem, documents in (("held_out", parts[HELD_OUT]), ("train", parts[TRAIN])):
        sizes |= {
            f"{stem}_documents": len(documents),
            f"{stem}_questions": sum(len(d.spans) for d in documents),
        }
    sizes |= {
        f"train_documents_of_{name}": n
        for name, n in Counter(d.corpus for d in parts[TRAIN]).items()
    }
    manifest = {
        "settings": settings.model_dump(),
        "counts": sizes,
        "questions_left_out": dict(questions.problems),
        "held_out_articles": [article.title for article in held_out],
        "sha256": {name: file_sha256(out / name) for name in parts},
        "provenance": provenance(),
    }
    replace_atomically(
        out / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    )
    questions.path.unlink(missing_ok=True)
    return out / MANIFEST


def read(path: Path) -> list[TrainingDocument]:
    """The documents of a file that `build` wrote. Raises UserError naming the line on anything
    else.
    """
    documents = []
    for number, record in read_jsonl(path):
        place = f"{path}:{number}"
        spans = tuple(
            SpanQuestion(
                field(s, "start", int, p), field(s, "stop", int, p), field(s, "question", str, p)
            )
            for s, p in objects(record, "spans", place)
        )
        text = field(record, "text", str, place)
        if not spans or any(not 0 <= span.start < span.stop <= len(text) for span in spans):
            raise UserError(f"{place}: there must be at least one span, each within the text")
        title = str(record.get("title") or "")
        documents.append(TrainingDocument(field(record, "key", str, place), title, text, spans))
    return documents


def long_articles(settings: Data) -> list[TrainingDocument]:
    """The long articles of the corpora, in a fixed random order, each text once."""
    once: dict[str, TrainingDocument] = {}
    for name in settings.corpora:
        corpus = Corpus((name,), limit=settings.corpus_documents)
        long = (
            TrainingDocument(f"{Path(name).name}/{number}", read.title, read.text)
            for number, read in enumerate(corpus.documents(Share()))
            if len(read.text) >= settings.min_characters
        )
        once |= {article.text: article for article in islice(long, settings.corpus_articles)}
    return in_random_order(once.values(), settings)


def split(
    articles: Iterable[TrainingDocument], seen: Iterable[str], settings: Data
) -> tuple[list[TrainingDocument], list[TrainingDocument]]:
    """(the articles to train on; those that contain seen text, and as many more as the held-out
    loss needs).
    """
    is_near = near_duplicates(seen, settings.near_duplicate)
    near = list[TrainingDocument]()
    others = list[TrainingDocument]()
    for article in articles:
        (near if is_near(article.text) else others).append(article)
    more = max(0, settings.held_out_documents - len(near))
    return others[more:], near + others[:more]


def passages(
    articles: Iterable[TrainingDocument], settings: Data, one_each: bool
) -> Iterator[TrainingDocument]:
    """Passages of the articles, with spans: in a fixed random order, the corpora in turn while they
    have any.
    """
    tokenizer = load_tokenizer(resolver.resolve(settings.model))
    documents: list[TrainingDocument] = []
    for article in articles:
        own = in_random_order(
            sft.cut(article, tokenizer, settings.document_tokens, settings.sentences), settings
        )
        documents += own[:1] if one_each else own
    by_corpus: dict[str, list[TrainingDocument]] = {}
    for document in in_random_order(documents, settings):
        by_corpus.setdefault(document.corpus, []).append(document)
    for document in filter(None, chain.from_iterable(zip_longest(*by_corpus.values()))):
        drawn = settings.spans, settings.span_sentences, settings.seed, settings.sentences
        yield sft.draw_spans(document, tokenizer, *drawn)


def in_random_order(
    documents: Iterable[TrainingDocument], settings: Data
) -> list[TrainingDocument]:
    """By ranks that are the same on every machine and do not depend on other documents."""
    return sorted(
        documents, key=lambda one: hashlib.sha256(f"{settings.seed}/{one.key}".encode()).digest()
    )


def near_duplicates(texts: Iterable[str], threshold: float) -> Callable[[str], bool]:
    """A test whether a piece of a text has at least this Jaccard similarity to a piece of `texts`,
    by MinHash.
    """
    from datasketch import MinHashLSH

    known = [
        piece for text in dict.fromkeys(texts) for piece in signatures(text, stride=PIECE_WORDS)
    ]
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    for number, signature in enumerate(known):
        index.insert(number, signature)

    def is_near(text: str) -> bool:
        # so that one at any place of the text is found
        pieces = signatures(text, stride=PIECE_WORDS // 4)
        return any(
            piece.jaccard(known[number]) >= threshold
            for piece in pieces
            for number in index.query(piece)
        )

    return is_near


def signatures(text: str, stride: int) -> list[MinHash]:
    """MinHash signatures of the text's pieces of `PIECE_WORDS` words, one every `stride` words. A
    much shorter last piece is left out, unless it is the whole text.
    """
    from datasketch import MinHash

    words = re.findall(r"\w+", text.lower())
    pieces = [
        words[at : at + PIECE_WORDS]
        for at in range(0, max(1, len(words) - PIECE_WORDS // 2), stride)
    ]
    shingles = [
        # the runs of so many words, or all words where there are fewer
        [
            " ".join(piece[at : at + SHINGLE_WORDS]).encode()
            for at in range(max(1, len(piece) - SHINGLE_WORDS + 1))
        ]
        for piece in pieces
        if piece
    ]
    hashes: list[MinHash] = MinHash.bulk(shingles, num_perm=PERMUTATIONS)
    return hashes


class Questions:
    """Has questions written, selects the usable ones, and counts the others by reason."""

    def __init__(self, settings: Data, path: Path, threads: int | None) -> None:
        """`path` is of a file that records replies, so that an interrupted run repeats no request."""
        self.settings = settings
        self.path = path
        self.threads = threads
        self.counts: Counter[str] = Counter(asked=0, kept=0)
        self.problems: Counter[str] = Counter()
        self._known: set[str] = set()  # usable questions

    def write(self, documents: Iterator[TrainingDocument], count: int) -> list[TrainingDocument]:
        """The first `count` documents with a usable question, each with the spans that have one."""
        usable: list[TrainingDocument] = []
        while len(usable) < count and (group := list(islice(documents, DOCUMENTS_PER_REQUEST))):
            spans = [
                (document.title, document.span_text(span))
                for document in group
                for span in document.spans
            ]
            replies = iter(sft.write_questions(self.writer, spans) if spans else [])
            written = [
                self._usable(document, [next(replies) for _ in document.spans])
                for document in group
            ]
            usable += [document for document in written if document.spans]
            logger.info("%d of %d documents have questions", min(count, len(usable)), count)
        return usable[:count]

    def _usable(
        self, document: TrainingDocument, replies: Sequence[str | None]
    ) -> TrainingDocument:
        spans = []
        for span, reply in zip(document.spans, replies, strict=True):
            question = sft.first_question(reply or "")
            problem = (
                sft.problem(question, document.span_text(span), document.title)
                if reply
                else "no reply"
            )
            problem = problem or ("was asked before" if question.lower() in self._known else None)
            self.counts["asked"] += 1
            if problem:
                self.problems[problem] += 1
            else:
                self.counts["kept"] += 1
                self._known.add(question.lower())
                spans.append(replace(span, question=question))
        return replace(document, spans=tuple(spans))

    @cached_property
    def writer(self) -> Chat:
        """The model that writes, whose replies are recorded. Raises UserError if it is not
        available.
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
