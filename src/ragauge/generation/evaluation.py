"""Sequences of evaluation text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from ragauge.errors import UserError
from ragauge.retrieval.database import Database, Evaluation, encode


@dataclass(frozen=True)
class EvaluationStretch:
    """A stretch of evaluation text."""

    key: str
    document: int  # whose rest is in the database; -1 if nothing of it is
    ids: tuple[int, ...]


def texts(
    database: Database, tokens: int, limit: int | None = None, evaluation: str | None = None
) -> list[EvaluationStretch]:
    """Stretches of exactly `tokens` tokens of the database's held-out text, or of the evaluation set of this label.

    The first of every document comes before the second of any, so that a limit covers as many documents as possible.

    Raises:
        UserError: no text is that long; there is no such set.
    """
    cut: list[tuple[int, EvaluationStretch]] = []
    for number, held_out in enumerate(database.evaluation(evaluation)):
        [ids] = encode(database.tokenizer, [held_out.text])
        cut += [
            (part, _stretch(number, part, held_out, ids[part * tokens : (part + 1) * tokens]))
            for part in range(len(ids) // tokens)
        ]
    if not cut:
        whose = f"texts of {evaluation}" if evaluation else "its held-out texts"
        longest = f"{database.folder}: none of {whose} has {tokens} tokens"
        raise UserError(f"{longest}; use fewer tokens, or hold out a larger share")
    return [stretch for _, stretch in sorted(cut, key=lambda one: one[0])[:limit]]


def published_texts(
    database: Database, tokens: int, limit: int | None = None, evaluation: str | None = None
) -> list[EvaluationStretch]:
    """The first `limit` documents, each cut at `tokens` tokens, shorter ones included, as PipeRAG's release has them.

    Special tokens are those that the tokenizer adds: T5's closes a text, and is a label like any other.

    Raises:
        UserError: no text has two tokens, one to read and one to predict; there is no such set.
    """
    stretches: list[EvaluationStretch] = []
    for number, held_out in enumerate(islice(database.evaluation(evaluation), limit)):
        [ids] = encode(database.tokenizer, [held_out.text], special=True)
        stretches += [_stretch(number, 0, held_out, ids[:tokens])] if len(ids) > 1 else []
    if not stretches:
        raise UserError(f"{database.folder}: none of the texts of {evaluation or 'its held-out share'} has two tokens")
    return stretches


def _stretch(number: int, part: int, held_out: Evaluation, ids: Sequence[int]) -> EvaluationStretch:
    return EvaluationStretch(f"{number}:{held_out.title or held_out.place}#{part}", held_out.document, tuple(ids))
