"""Ranked passages of another system, from its file, in place of a study's own retrieval.

Formats, by the end of the file's name: `.jsonl`, lines {"question": ..., "passages": [...]}, the
best first; `.json`, BEIR's dictionary {question: {passage: score}}; any other, a run of TREC, as
Pyserini writes it: question, Q0, passage, rank, score, name, of which the score orders, as in
trec_eval. A question is named by its `id`, its text, or its `id` in questions.jsonl; a passage by
its `id` in passages.jsonl, which depends on its title and text.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io.files import text_sha256
from ragauge.io.jsonl import field, number, read_jsonl, read_lines, read_object, strings
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion


def passage_id(passage: Passage) -> str:
    """Identify a passage by its document and its text, wherever its corpus was cut."""
    return text_sha256(passage.document, passage.text)[:12]


def read(
    path: Path, questions: Sequence[StudyQuestion], passages: Sequence[Passage], count: int
) -> list[list[int]]:
    """Read the rankings of another system: (question, rank) passages, the best first.

    Raises UserError: a question has fewer than `count`, a question or passage is not known, a
    passage is there twice for a question, or a score is no finite number.
    """
    numbers = {passage_id(passage): i for i, passage in enumerate(passages)}
    found = {question.key: dict[str, float]() for question in questions}
    scores_of = {
        name: found[q.key] for q in questions for name in (q.id or q.key, q.key, q.question)
    }
    for place, question, passage, score in _entries(path):
        if question not in scores_of:
            raise UserError(f"{place}: no question of the study has the id or text {question!r}")
        scores = scores_of[question]
        if passage in scores or passage not in numbers:
            problem = "is there twice" if passage in scores else "is no passage of the study"
            raise UserError(f"{place}: {passage!r} {problem}")
        if not math.isfinite(score):
            raise UserError(f"{place}: the score of {passage!r} is {score}")
        scores[passage] = score
    for asked in questions:
        if len(found[asked.key]) < min(count, len(passages)):
            counts = f"{len(found[asked.key])} passages, fewer than --top {count}"
            raise UserError(f"{path}: {counts}, for the question {asked.question!r}")
    return [
        [numbers[name] for name in sorted(scores, key=scores.__getitem__, reverse=True)]
        for scores in found.values()
    ]


def _entries(path: Path) -> Iterator[tuple[str, str, str, float]]:
    """Yield place, question, passage and score."""
    name = path.name.lower()
    if name.endswith(".json"):
        whole = read_object(path)
        for question in whole:
            place = f"{path}: {question}"
            scores = field(whole, question, dict, str(path))
            for passage in scores:
                yield place, question, passage, number(scores, passage, place, least=-sys.maxsize)
    elif ".jsonl" in name:
        for line_number, row in read_jsonl(path):
            place = f"{path}:{line_number}"
            question = field(row, "question", str, place)
            for rank, passage in enumerate(strings(row, "passages", place)):
                yield place, question, passage, -rank
    else:
        for line_number, line in read_lines(path):
            place = f"{path}:{line_number}"
            try:
                question, _, passage, _, score, _ = line.decode().split()
                yield place, question, passage, float(score)
            except ValueError:
                raise UserError(f"{place}: not the six columns of a run: {line!r}") from None
