"""The data sets of our own questions over the Wikipedia sample, built once: gold passages and distractors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragauge.datasets._wiki_corpus import QUESTIONS, SAMPLE, WikiCorpus, WikiQuestion, build_records, read_questions
from ragauge.datasets.base import ArrangedDataset, Example, documents_of, shuffled_order
from ragauge.errors import UserError
from ragauge.io import wikipedia
from ragauge.io.jsonl import field, strings
from ragauge.io.wikipedia import ArticlePassage

Json = dict[str, Any]


@dataclass(frozen=True)
class WikiDataset(ArrangedDataset):
    """Questions with `DOCUMENTS` passages each, shuffled by the seed. Subclasses name their file of questions."""

    assets = (SAMPLE,)

    def default_path(self) -> Path:
        path = QUESTIONS / f"{self.name}.jsonl"
        return build_records(self.name, path, Path(__file__), lambda sample: read_records(path, sample))

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        example = Example(
            key=field(record, "id", str, place),
            question=field(record, "question", str, place),
            answers=strings(record, "answers", place),
            **documents_of(record, "documents", place),
        )
        return self.arranged(example, place)

    def order(self, example: Example, place: str) -> list[int]:
        return shuffled_order(len(example.documents), self.seed, example.key)


def read_records(path: Path, sample: Path) -> Iterator[Json]:
    """Make the lines of the data set of a file of questions over the sample."""
    corpus, questions = WikiCorpus(wikipedia.read_passages(sample)), read_questions(path)
    yield from records(questions, corpus, distractors(path, questions, corpus))


def records(
    questions: Sequence[WikiQuestion], corpus: WikiCorpus, chosen: Mapping[str, Sequence[int]]
) -> Iterator[Json]:
    """Make the data set's lines: gold passages first, then the question's distractors, the hardest first."""
    for question in questions:
        gold = corpus.gold(question)
        documents = [(corpus.passages[i], i in gold) for i in [*gold, *chosen[question.id]]]
        yield {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "documents": [{"title": p.title, "text": p.text, "is_gold": is_gold} for p, is_gold in documents],
        }


def distractors(path: Path, questions: Sequence[WikiQuestion], corpus: WikiCorpus) -> Mapping[str, Sequence[int]]:
    """Read the distractors of each question's id, as numbers of passages, the hardest first.

    Args:
        path: the file of the questions.

    Raises:
        UserError: they were chosen for other questions or passages.
    """
    stored = json.loads(distractors_file(path).read_bytes())
    if stored["made_from"] != digest(questions, corpus.passages):
        raise UserError(f"{distractors_file(path)}: was chosen for other questions or passages")
    chosen: dict[str, list[int]] = stored["distractors"]
    return chosen


def distractors_file(path: Path) -> Path:
    """Name the file of the distractors of a file of questions."""
    return path.with_suffix(".distractors.json")


def digest(questions: Sequence[WikiQuestion], passages: Sequence[ArticlePassage]) -> str:
    """Digest everything that a choice of distractors depends on but the code: questions and passages, in order."""
    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    parts = [json.dumps(asdict(question)) for question in questions] + texts
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
