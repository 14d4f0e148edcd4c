"""The questions of a study, from JSON lines or CSV."""

import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.io.jsonl import field, read_jsonl, strings

ANSWER_SEPARATOR = "|"  # in a cell of a CSV file


@dataclass(frozen=True)
class StudyQuestion:
    """A question, its answer with aliases and the title of the document that holds it, both where known."""

    question: str
    answers: tuple[str, ...]
    gold: str | None = None

    @property
    def key(self) -> str:
        """Identify the question over runs and orders."""
        return hashlib.sha256(self.question.encode()).hexdigest()[:16]


def read_questions(path: Path) -> list[StudyQuestion]:
    """Read a file of questions. Raises UserError: no such file, a missing field, the same question twice, none."""
    rows = _csv(path) if path.suffix == ".csv" else ((f"{path}:{n}", record) for n, record in read_jsonl(path))
    questions: dict[str, StudyQuestion] = {}
    for place, row in rows:
        answers = strings(row, "answers", place) if row.get("answers") else ()
        gold = field(row, "gold", str, place) if row.get("gold") else None
        question = StudyQuestion(field(row, "question", str, place), answers, gold)
        if question.key in questions:
            raise UserError(f"{place}: the question {question.question!r} is there twice")
        questions[question.key] = question
    if not questions:
        raise UserError(f"{path}: no questions")
    return list(questions.values())


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows with their places, answers as lists."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                answers = [answer.strip() for answer in (row.get("answers") or "").split(ANSWER_SEPARATOR)]
                yield f"{path}:{reader.line_num}", {**row, "answers": [answer for answer in answers if answer]}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as CSV: {error}") from None
