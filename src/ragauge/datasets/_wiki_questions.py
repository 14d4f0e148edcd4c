"""The data sets of our own questions over the Wikipedia sample, built once: gold passages and distractors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragauge.datasets import _wiki_corpus
from ragauge.datasets._base import (
    Dataset,
    Document,
    Example,
    check_counts,
    fewer,
    joined,
    reordered,
    shuffled_order,
)
from ragauge.datasets._wiki_corpus import QUESTIONS, SAMPLE, WikiCorpus, WikiQuestion, read_questions
from ragauge.errors import UserError
from ragauge.io import wikipedia
from ragauge.io.jsonl import field, objects, strings
from ragauge.io.wikipedia import ArticlePassage

Json = dict[str, Any]


@dataclass(frozen=True)
class WikiDataset(Dataset):
    """Questions with `DOCUMENTS` passages each, shuffled by the seed. Subclasses name their file of questions."""

    assets: ClassVar[tuple[str, ...]] = (SAMPLE,)
    documents: int | None = None  # keep so many: the gold ones and the hardest others; None: all
    joined: int = 1  # join so many documents, as they then stand, to one

    def __post_init__(self) -> None:
        check_counts(self.name, self.documents, self.joined)

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
        example = fewer(example, self.documents, place)
        order = shuffled_order(len(example.documents), self.seed, example.key)
        return joined(reordered(example, order), self.joined)


def records(
    questions: Sequence[WikiQuestion], corpus: WikiCorpus, chosen: Mapping[str, Sequence[int]]
) -> Iterator[Json]:
    """The data set's lines: gold passages first, then the distractors chosen for the question, the hardest first."""
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


def built(questions: Path) -> Path:
    """Build the data set of a file of questions as JSONL, once for every state of questions, sample and code."""
    from ragauge import assets
    from ragauge.assets import store
    from ragauge.io.files import file_sha256

    sample = assets.resolve(SAMPLE)
    code = map(Path, (__file__, _wiki_corpus.__file__, wikipedia.__file__))
    state = [file_sha256(path) for path in (questions, *code, sample)]
    home = store.Store(store.home())
    target = home.folder("datasets", questions.stem, *state)
    return home.build(target, lambda folder: _write(folder, questions, sample)) / "records.jsonl"


def _write(folder: Path, path: Path, sample: Path) -> dict[str, Any]:
    corpus, questions = WikiCorpus(wikipedia.read_passages(sample)), read_questions(path)
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for record in records(questions, corpus, distractors(path, questions, corpus)):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return {"source": SAMPLE, "questions": path.name, "passages": len(corpus.passages)}
