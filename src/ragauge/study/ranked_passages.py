"""Ranked passages of another system in place of a study's own retrieval (formats:
`io/rankings.py`).

A question is named by its `id`, its text, or its `id` in questions.jsonl; a passage by its `id` in
passages.jsonl, which depends on its title and text.
"""

from collections.abc import Sequence
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io.files import text_sha256
from ragauge.io.rankings import read_rankings
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion


def passage_id(passage: Passage) -> str:
    """Identify a passage by its document and its text, wherever its corpus was cut."""
    return text_sha256(passage.document, passage.text)[:12]


def read(
    path: Path, questions: Sequence[StudyQuestion], passages: Sequence[Passage], count: int
) -> list[list[int]]:
    """Read the rankings of another system: (question, rank) passages, the best first.

    Raises:
        UserError: a question has fewer than `count`, or as `read_rankings`.
    """
    numbers = {passage_id(passage): i for i, passage in enumerate(passages)}
    names = {name: q.key for q in questions for name in (q.id or q.key, q.key, q.question)}
    found = read_rankings(path, names, {question.key: numbers for question in questions})
    for asked in questions:
        if len(found[asked.key]) < min(count, len(passages)):
            raise UserError(
                f"{path}: {len(found[asked.key])} passages, fewer than --top {count}, "
                f"for the question {asked.question!r}"
            )
    return list(found.values())
