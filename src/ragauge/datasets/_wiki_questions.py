"""Our own questions over the Wikipedia sample: finding their gold passages and putting distractors beside them.

The question files name articles and sections only; the text is cut from the sample on this machine, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

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

SAMPLE = "wikipedia-sample"  # its name in the catalog of assets
DOCUMENTS = 20  # a question, as NQ-Open and MuSiQue have
QUESTIONS = Path(__file__).parent / "questions"
Json = dict[str, Any]


@dataclass(frozen=True)
class WikiDataset(Dataset):
    """Questions with `DOCUMENTS` passages each, shuffled by the seed. Subclasses name their file of questions."""

    assets: ClassVar[tuple[str, ...]] = (SAMPLE,)

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
    """The passages that questions are asked over."""

    passages: Sequence[Passage]

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


def records(questions: Sequence[Question], corpus: Corpus, chosen: Mapping[str, Sequence[int]]) -> Iterator[Json]:
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


# --- what is kept on disk ---


def built(questions: Path) -> Path:
    """The data set of a file of questions as JSONL, made once for every state of questions, sample and code."""
    from ragauge import assets
    from ragauge.assets import store
    from ragauge.datasets import _distractors

    sample = assets.resolve(SAMPLE)
    code = (Path(__file__), Path(_wikipedia.__file__), Path(_distractors.__file__))
    state = [store.file_sha256(path) for path in (questions, *code, sample)]
    home = store.Store(store.home())
    target = home.folder("datasets", questions.stem, *state)
    return home.build(target, lambda folder: _write(folder, questions, sample)) / "records.jsonl"


def _write(folder: Path, questions: Path, sample: Path) -> dict[str, Any]:
    from ragauge.datasets import _distractors

    corpus = Corpus(_wikipedia.read_passages(sample))
    asked = read_questions(questions)
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for record in records(asked, corpus, _distractors.of(questions, asked, corpus)):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return {"source": SAMPLE, "questions": questions.name, "passages": len(corpus.passages)}
