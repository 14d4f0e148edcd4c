"""Sequences of evaluation text, and the database's chunks by number: what generation and its control read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragauge.errors import UserError
from ragauge.retrieval.database import Database, encode


@dataclass(frozen=True)
class EvaluationStretch:
    """A stretch of evaluation text."""

    key: str
    document: int  # whose rest is in the database; -1 if nothing of it is
    ids: tuple[int, ...]


def texts(
    database: Database, tokens: int, limit: int | None = None, evaluation: str | None = None
) -> list[EvaluationStretch]:
    """Stretches of exactly `tokens` tokens of the database's held-out text, or of one of its evaluation sets.

    The first of every document comes before the second of any, so that a limit covers as many documents as possible.

    Args:
        evaluation: label of the set.

    Raises:
        UserError: no text is that long; there is no such set.
    """
    cut: list[tuple[int, int, EvaluationStretch]] = []
    for number, held_out in enumerate(database.evaluation(evaluation)):
        [ids] = encode(database.tokenizer, [held_out.text])
        for part in range(len(ids) // tokens):
            key = f"{number}:{held_out.title or held_out.place}#{part}"
            stretch = EvaluationStretch(key, held_out.document, tuple(ids[part * tokens : (part + 1) * tokens]))
            cut.append((part, number, stretch))
    if not cut:
        whose = f"texts of {evaluation}" if evaluation else "its held-out texts"
        longest = f"{database.folder}: none of {whose} has {tokens} tokens"
        raise UserError(f"{longest}; use fewer tokens, or hold out a larger share")
    return [stretch for _, _, stretch in sorted(cut, key=lambda one: one[:2])[:limit]]


@dataclass(frozen=True)
class DatabaseChunks:
    """The chunks of a database, each with what follows it: `sources.Passages`."""

    database: Database

    def __len__(self) -> int:
        """Chunks."""
        return len(self.database)

    def passage(self, chunk: int, continuation: int) -> tuple[int, list[int]]:
        database, chain = self.database, [np.array([chunk])]
        for _ in range(continuation):
            chain.append(database.continuations(chain[-1]))
        ids = np.concatenate(chain)
        rows = zip(database.tokens(ids), database.lengths(ids), strict=True)
        return int(database.documents(ids[:1])[0]), [int(token) for row, length in rows for token in row[:length]]
