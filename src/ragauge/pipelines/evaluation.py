"""Sequences of evaluation text."""

from dataclasses import dataclass
from itertools import islice

from ragauge.errors import UserError
from ragauge.pipelines.database.database import Database, encode


@dataclass(frozen=True)
class EvaluationStretch:
    key: str
    document: int  # whose rest is in the database; -1 if nothing of it is
    ids: tuple[int, ...]


def texts(
    database: Database,
    tokens: int,
    limit: int | None = None,
    evaluation: str | None = None,
    *,
    published: bool = False,
) -> list[EvaluationStretch]:
    """Stretches of exactly `tokens` tokens of the database's held-out text, or of the evaluation
    set of this label.

    The first of every document comes before the second of any. `published`: instead the first
    `limit` documents, each cut at `tokens` tokens, shorter ones included, as in PipeRAG's release,
    with the tokenizer's special tokens.

    Raises:
        UserError: no text is that long, or none has two tokens; there is no such set.
    """
    cut: list[tuple[int, EvaluationStretch]] = []
    documents = islice(database.evaluation(evaluation), limit if published else None)
    for number, held_out in enumerate(documents):
        [ids] = encode(database.tokenizer, [held_out.text], special=published)
        for part in range(len(ids) > 1 if published else len(ids) // tokens):
            key = f"{number}:{held_out.title or held_out.place}#{part}"
            tokens_of_part = ids[part * tokens : (part + 1) * tokens]
            cut.append((part, EvaluationStretch(key, held_out.document, tuple(tokens_of_part))))
    if not cut:
        whose = f"texts of {evaluation}" if evaluation else "its held-out texts"
        raise UserError(
            f"{database.folder}: none of {whose} has {2 if published else tokens} tokens; "
            "use fewer tokens, or hold out a larger share"
        )
    return [stretch for _, stretch in sorted(cut, key=lambda one: one[0])[:limit]]
