"""Ranked passages of another system, from its file.

Formats, by the end of the file's name: `.jsonl`, lines {"question": ..., "passages": [...]}, the
best first; `.json`, BEIR's dictionary {question: {passage: score}}; any other, a run of TREC, as
Pyserini writes it: question, Q0, passage, rank, score, name, of which the score orders, as in
trec_eval.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io.jsonl import field, number, read_jsonl, read_lines, read_object, strings


def read_rankings(
    path: Path,
    questions: Mapping[str, str],
    passages: Mapping[str, Mapping[str, int]],
    *,
    skip_others: bool = False,
) -> dict[str, list[int]]:
    """Read key of a question -> numbers of its ranked passages, the best first.

    Args:
        questions: each name that the file may have for a question -> its key.
        passages: key -> name of a passage -> its number.
        skip_others: whether the file may rank passages for other questions too.

    Raises:
        UserError: a question or passage is not known, a passage is there twice for a question, or
            a score is no finite number.
    """
    found = {key: dict[str, float]() for key in passages}
    for place, question, passage, score in _entries(path):
        key = questions.get(question)
        if key is None and skip_others:
            continue
        if key is None:
            raise UserError(f"{place}: no question here has the id or text {question!r}")
        scores = found[key]
        if passage in scores:
            raise UserError(f"{place}: {passage!r} is there twice")
        if passage not in passages[key]:
            raise UserError(f"{place}: {passage!r} is no passage of its question")
        if not math.isfinite(score):
            raise UserError(f"{place}: the score of {passage!r} is {score}")
        scores[passage] = score
    return {
        key: [passages[key][name] for name in sorted(scores, key=scores.__getitem__, reverse=True)]
        for key, scores in found.items()
    }


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
