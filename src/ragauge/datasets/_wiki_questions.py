"""Our own questions over the Wikipedia sample: finding their gold passages and choosing hard distractors.

The question files name articles and sections only; the text is cut from the sample on this machine, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ragauge.datasets import _wikipedia
from ragauge.datasets._base import (
    Dataset,
    Document,
    Example,
    field,
    objects,
    read_jsonl,
    reordered,
    shuffled_order,
    strings,
)
from ragauge.datasets._wikipedia import Passage
from ragauge.errors import UserError
from ragauge.metrics._text import normalise

SAMPLE, ENCODER = "wikipedia-sample", "minilm"  # names in the catalog of assets
DOCUMENTS = 20  # a question, as NQ-Open and MuSiQue have
EMBEDDED_AT_ONCE = 256  # passages between two updates of the progress bar
QUESTIONS = Path(__file__).parent / "questions"


@dataclass(frozen=True)
class WikiDataset(Dataset):
    """Questions with `DOCUMENTS` passages each, shuffled by the seed. Subclasses name their file of questions."""

    assets: ClassVar[tuple[str, ...]] = (SAMPLE, ENCODER)

    def default_path(self) -> Path:
        return built(QUESTIONS / f"{self.name}.jsonl")

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        documents = objects(record, "documents", place)
        example = Example(
            key=field(record, "id", str, place),
            question=field(record, "question", str, place),
            documents=tuple(Document(field(d, "title", str, at), field(d, "text", str, at)) for d, at in documents),
            answers=strings(record, "answers", place),
            gold=tuple(i for i, (d, at) in enumerate(documents) if field(d, "is_gold", bool, at)),
        )
        return reordered(example, shuffled_order(len(documents), self.seed, example.key))


@dataclass(frozen=True)
class Place:
    """Where a gold passage stands: in this section, holding the answer and the words `near` it."""

    article: str
    section: str  # heading; empty for the lead
    near: str = ""  # tells passages of one section apart where several hold the answer


@dataclass(frozen=True)
class Question:
    """A question as its file has it. With two gold places the first holds the bridge, the last the answer."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[Place, ...]
    bridge: tuple[str, ...] = ()  # the answer of the first hop and its aliases


def read_questions(path: Path) -> list[Question]:
    """The questions of a file of this package."""
    return [_question(record, f"{path}:{number}") for number, record in read_jsonl(path)]


def _question(record: Mapping[str, Any], place: str) -> Question:
    return Question(
        id=field(record, "id", str, place),
        question=field(record, "question", str, place),
        answers=strings(record, "answers", place),
        gold=tuple(Place(g["article"], g["section"], g.get("near", "")) for g, _ in objects(record, "gold", place)),
        bridge=strings(record, "bridge", place) if "bridge" in record else (),
    )


def holds_one(text: str, answers: Iterable[str]) -> bool:
    """Whether one of the answers stands in the text, both normalised."""
    normalised = normalise(text)
    return any(normalise(answer) in normalised for answer in answers)


@dataclass(frozen=True)
class Corpus:
    """The passages that questions are asked over, with both rankers' indexes of them."""

    passages: Sequence[Passage]
    embeddings: np.ndarray  # (passage, dim) float32, of length 1

    @cached_property
    def normalised(self) -> list[str]:
        """The passages as answers are looked for in them."""
        return [normalise(passage.text) for passage in self.passages]

    def holding(self, answers: Iterable[str]) -> set[int]:
        """The passages that hold one of the answers, anywhere."""
        wanted = [normalise(answer) for answer in answers]
        return {i for i, text in enumerate(self.normalised) if any(w in text for w in wanted)}

    def gold(self, question: Question) -> list[int]:
        """The gold passages, one a place, in the order of the hops; UserError where a place does not name one."""
        found = []
        for hop, place in enumerate(question.gold, start=1):
            holding = self.holding(question.answers if hop == len(question.gold) else question.bridge)
            fitting = [i for i in sorted(holding) if self._stands_at(i, place)]
            if len(fitting) != 1:
                raise UserError(f"question {question.id}: {len(fitting)} passages fit hop {hop} ({place}), not one")
            found += fitting
        return found

    def _stands_at(self, index: int, place: Place) -> bool:
        passage = self.passages[index]
        section = (passage.article, passage.heading) == (place.article, place.section)
        return section and place.near.casefold() in passage.text.casefold()

    def neighbours(self, query: str, embedding: np.ndarray) -> Iterator[list[int]]:
        """Two orders of passages, nearest first: by BM25 where a word agrees, and by the encoder's cosine.

        Ties keep the order of the text; cosines are rounded, for one order whatever library sums the products.
        """
        lexical = self._bm25.get_scores(_words([query])[0])
        yield _descending(lexical)[: np.count_nonzero(lexical)]
        yield _descending(np.round(self.embeddings @ embedding, 4))

    @cached_property
    def _bm25(self) -> Any:
        import bm25s

        index = bm25s.BM25(k1=1.5, b=0.75)
        index.index(_words([f"{p.title} {p.text}" for p in self.passages]), show_progress=False)
        return index


def _descending(scores: np.ndarray) -> list[int]:
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _words(texts: list[str]) -> list[list[str]]:
    """Words without stop words: among thousands of passages those only say that a query is a question."""
    import bm25s

    words: list[list[str]] = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    return words


def distractors(orders: Iterable[Sequence[int]], barred: set[int], count: int) -> list[int]:
    """The first `count` different passages of the orders, taken in turns, that are not barred."""
    turns = (i for turn in zip_longest(*orders) for i in turn if i is not None and i not in barred)
    return list(dict.fromkeys(turns))[:count]


def records(questions: Sequence[Question], corpus: Corpus, encode: Any) -> Iterator[dict[str, Any]]:
    """The data set's lines: gold passages first, then distractors, the hardest first.

    Distractors are neighbours of the question and, for two hops, of the bridge; none holds an answer.

    Args:
        encode: texts -> (text, dim) embeddings, by the encoder that embedded the passages.
    """
    queries = [[q.question, *q.bridge[:1]] for q in questions]
    embeddings = iter(encode([query for group in queries for query in group]))
    for question, group in zip(questions, queries, strict=True):
        gold = corpus.gold(question)
        orders = [order for query in group for order in corpus.neighbours(query, next(embeddings))]
        others = distractors(orders, corpus.holding(question.answers) | set(gold), DOCUMENTS - len(gold))
        documents = [(corpus.passages[i], i in gold) for i in [*gold, *others]]
        yield {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "documents": [{"title": p.title, "text": p.text, "is_gold": is_gold} for p, is_gold in documents],
        }


# --- what is kept on disk ---


def built(questions: Path) -> Path:
    """The data set of a file of questions as JSONL, made once for every state of questions, sample and code."""
    from ragauge import assets
    from ragauge.assets import store

    sample = assets.resolve(SAMPLE)
    state = [store.file_sha256(path) for path in (questions, Path(__file__), Path(_wikipedia.__file__), sample)]
    home = store.Store(store.home())
    target = home.folder("datasets", questions.stem, ENCODER, *state)
    return home.build(target, lambda folder: _write(folder, questions, sample)) / "records.jsonl"


def _write(folder: Path, questions: Path, sample: Path) -> dict[str, Any]:
    from ragauge.rankers.dense import load_encoder

    passages = _wikipedia.read_passages(sample)
    corpus = Corpus(passages, _embedded(passages))
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for record in records(read_questions(questions), corpus, load_encoder(ENCODER).encode):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return {"source": SAMPLE, "questions": questions.name, "passages": len(passages)}


def _embedded(passages: Sequence[Passage]) -> np.ndarray:
    """Embeddings of all passages (passage, dim), made once and shared by the data sets."""
    from ragauge.assets import store

    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    home = store.Store(store.home())
    folder = home.build(home.folder("datasets", "wiki_embeddings", ENCODER, *texts), lambda f: _embed(f, texts))
    embeddings: np.ndarray = np.load(folder / "embeddings.npy", allow_pickle=False)
    return embeddings


def _embed(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    from tqdm import tqdm

    from ragauge.rankers.dense import load_encoder

    encoder = load_encoder(ENCODER)
    parts = []
    with tqdm(total=len(texts), desc="embedding the Wikipedia sample", unit="passage") as progress:
        for start in range(0, len(texts), EMBEDDED_AT_ONCE):
            parts.append(encoder.encode(texts[start : start + EMBEDDED_AT_ONCE]))
            progress.update(len(parts[-1]))
    np.save(folder / "embeddings.npy", np.concatenate(parts))
    return {"source": ENCODER, "passages": len(texts)}
