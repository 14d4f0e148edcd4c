"""Our own questions over the Wikipedia sample, and data sets of them: gold passages among hard
distractors.

The files of questions name articles, sections and numbers of passages only; the text is cut from
the sample on this machine.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ragauge.datasets.base import wikipedia
from ragauge.datasets.base.dataset import ArrangedDataset, Example, example_of, shuffled_order
from ragauge.datasets.base.wikipedia import ArticlePassage
from ragauge.errors import UserError
from ragauge.io.jsonl import read_jsonl
from ragauge.metrics.base import normalise

SAMPLE = "wikipedia-sample"  # its name in the catalog of assets
DOCUMENTS = 20  # a question, as NQ-Open and MuSiQue have
QUESTIONS = Path(__file__).parent / "questions"


@dataclass(frozen=True)
class WikiDataset(ArrangedDataset):
    """Questions with `DOCUMENTS` passages each, shuffled by the seed. Subclasses name their file of
    questions.
    """

    assets = (SAMPLE,)

    def default_path(self) -> Path:
        return default_records(self.name)

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        return self.arranged(example_of(record, place), place)

    def order(self, example: Example, place: str) -> list[int]:
        return shuffled_order(len(example.documents), self.seed, example.key)


def default_records(name: str) -> Path:
    """Return the records of a file of questions, each with its passages, built on first use."""
    path = QUESTIONS / f"{name}.jsonl"
    return build_records(name, path, Path(__file__), partial(records, path))


@dataclass(frozen=True)
class GoldPlace:
    """The place of a gold passage: in this section, with the answer and the words `near` it."""

    article: str
    section: str  # heading; empty for the lead
    near: str = ""  # tells passages of one section apart where several hold the answer

    def fits(self, text: str, answers: Iterable[str]) -> bool:
        """Return whether a text of the section holds an answer and the words near it."""
        return self.near.casefold() in text.casefold() and holds_answer(text, answers)


@dataclass(frozen=True)
class WikiQuestion:
    """A question as its file has it. With two gold places the first holds the bridge, the last the
    answer.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[GoldPlace, ...]
    bridge: tuple[str, ...] = ()  # the answer of the first hop and its aliases


def read_questions(path: Path) -> list[WikiQuestion]:
    question = TypeAdapter(WikiQuestion)
    return [question.validate_python(record) for _, record in read_jsonl(path)]


def gold_passages(question: WikiQuestion, passages: Sequence[ArticlePassage]) -> list[int]:
    """Find the passages that fit the question's places, in the order of the hops: one a place."""
    gold = []
    for place in question.gold:
        answers = question.answers if place is question.gold[-1] else question.bridge
        gold += [
            i
            for i, passage in enumerate(passages)
            if (passage.article, passage.heading) == (place.article, place.section)
            and place.fits(passage.text, answers)
        ]
    return gold


def holds_answer(text: str, answers: Iterable[str]) -> bool:
    """Return whether a text contains an answer, both normalised."""
    words = normalise(text)
    return any(normalise(answer) in words for answer in answers)


def build_records(
    name: str, path: Path, code: Path, records: Callable[[Path], Iterable[Mapping[str, Any]]]
) -> Path:
    """Build a data set over the sample as JSONL, once for every state of the questions and
    distractors, the sample and the module `code`, whose `records` makes the lines from the file of
    the sample.
    """
    from ragauge.assets import resolver, store
    from ragauge.io.files import file_sha256

    def write(folder: Path) -> dict[str, Any]:
        with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
            for record in records(sample):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        return {"source": SAMPLE, "questions": path.name}

    sample = resolver.resolve(SAMPLE)
    home = store.Store(store.home())
    files = [
        *sorted(path.parent.glob(f"{path.stem}.*")),
        code,
        Path(__file__),
        Path(wikipedia.__file__),
        sample,
    ]
    state = list(map(file_sha256, files))
    return home.build(home.folder("datasets", name, *state), write) / "records.jsonl"


def records(path: Path, sample: Path) -> Iterator[dict[str, Any]]:
    """Make the lines of the data set of a file of questions: gold passages first, then the
    question's distractors.
    """
    questions = read_questions(path)
    passages = wikipedia.read_passages(sample)
    chosen = distractors(path, questions, passages)
    for question in questions:
        gold = gold_passages(question, passages)
        documents = [(passages[i], i in gold) for i in [*gold, *chosen[question.id]]]
        yield {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "documents": [
                {"title": p.title, "text": p.text, "is_gold": is_gold} for p, is_gold in documents
            ],
        }


def distractors(
    path: Path, questions: Sequence[WikiQuestion], passages: Sequence[ArticlePassage]
) -> Mapping[str, Sequence[int]]:
    """Read the distractors of each question's id, as numbers of passages, the hardest first.

    Raises:
        UserError: they were chosen for other questions or passages.
    """
    file = path.with_suffix(".distractors.json")
    stored = json.loads(file.read_bytes())
    if stored["made_from"] != digest(questions, passages):
        raise UserError(f"{file}: was chosen for other questions or passages")
    return stored["distractors"]


def digest(questions: Sequence[WikiQuestion], passages: Sequence[ArticlePassage]) -> str:
    """Digest everything that a choice of distractors depends on but the code: questions and
    passages, in order.
    """
    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    parts = [json.dumps(asdict(question)) for question in questions] + texts
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
