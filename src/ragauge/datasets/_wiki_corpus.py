"""Our own questions over the Wikipedia sample, as their files have them, and the passages that they are asked over.

The files name articles and sections only; the text is cut from the sample on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io import wikipedia
from ragauge.io.jsonl import field, objects, read_jsonl, strings
from ragauge.io.wikipedia import ArticlePassage
from ragauge.metrics import normalise

SAMPLE = "wikipedia-sample"  # its name in the catalog of assets
DOCUMENTS = 20  # a question, as NQ-Open and MuSiQue have
QUESTIONS = Path(__file__).parent / "questions"


@dataclass(frozen=True)
class GoldPlace:
    """Where a gold passage stands: in this section, holding the answer and the words `near` it."""

    article: str
    section: str  # heading; empty for the lead
    near: str = ""  # tells passages of one section apart where several hold the answer


@dataclass(frozen=True)
class WikiQuestion:
    """A question as its file has it. With two gold places the first holds the bridge, the last the answer."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[GoldPlace, ...]
    bridge: tuple[str, ...] = ()  # the answer of the first hop and its aliases


def build_records(name: str, path: Path, code: Path, records: Callable[[Path], Iterable[Mapping[str, Any]]]) -> Path:
    """Build a data set over the sample as JSONL, once for every state of questions, sample and code.

    Args:
        path: of the file of questions.
        code: the module that makes the records.
        records: the file of the sample -> the lines of the data set.
    """
    from ragauge import assets
    from ragauge.assets import store
    from ragauge.io.files import file_sha256

    def write(folder: Path) -> dict[str, Any]:
        with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
            for record in records(sample):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        return {"source": SAMPLE, "questions": path.name}

    sample, home = assets.resolve(SAMPLE), store.Store(store.home())
    state = [file_sha256(each) for each in (path, code, Path(__file__), Path(wikipedia.__file__), sample)]
    return home.build(home.folder("datasets", name, *state), write) / "records.jsonl"


def read_questions(path: Path) -> list[WikiQuestion]:
    """The questions of a file of this package."""
    return [_question(record, f"{path}:{number}") for number, record in read_jsonl(path)]


def _question(record: Mapping[str, Any], place: str) -> WikiQuestion:
    return WikiQuestion(
        id=field(record, "id", str, place),
        question=field(record, "question", str, place),
        answers=strings(record, "answers", place),
        gold=tuple(GoldPlace(g["article"], g["section"], g.get("near", "")) for g, _ in objects(record, "gold", place)),
        bridge=strings(record, "bridge", place) if "bridge" in record else (),
    )


def holds_one(text: str, answers: Iterable[str]) -> bool:
    """Whether one of the answers stands in the text, both normalised."""
    normalised = normalise(text)
    return any(normalise(answer) in normalised for answer in answers)


@dataclass(frozen=True)
class WikiCorpus:
    """The passages that questions are asked over."""

    passages: Sequence[ArticlePassage]

    @cached_property
    def normalised(self) -> list[str]:
        """The passages as answers are looked for in them."""
        return [normalise(passage.text) for passage in self.passages]

    def holding(self, answers: Iterable[str]) -> set[int]:
        """The passages that hold one of the answers, anywhere."""
        wanted = [normalise(answer) for answer in answers]
        return {i for i, text in enumerate(self.normalised) if any(w in text for w in wanted)}

    def gold(self, question: WikiQuestion) -> list[int]:
        """The gold passages, one a place, in the order of the hops; UserError where a place does not name one."""
        found = []
        for hop, place in enumerate(question.gold, start=1):
            holding = self.holding(question.answers if hop == len(question.gold) else question.bridge)
            fitting = [i for i in sorted(holding) if self._stands_at(i, place)]
            if len(fitting) != 1:
                raise UserError(f"question {question.id}: {len(fitting)} passages fit hop {hop} ({place}), not one")
            found += fitting
        return found

    def _stands_at(self, index: int, place: GoldPlace) -> bool:
        passage = self.passages[index]
        section = (passage.article, passage.heading) == (place.article, place.section)
        return section and place.near.casefold() in passage.text.casefold()
