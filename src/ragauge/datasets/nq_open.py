"""NQ-Open as Lost in the Middle gives it: one gold passage among retrieved distractors (Liu et al., TACL 2024)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragauge.datasets._base import (
    SEARCH_RESULTS,
    Dataset,
    Document,
    Example,
    check_counts,
    fewer,
    joined,
    out_of_reach,
    reordered,
    shuffled_order,
)
from ragauge.errors import UserError
from ragauge.io.jsonl import field, objects, strings

# No hub holds these files whole; their repository does.
_SOURCE = (
    "https://raw.githubusercontent.com/nelson-liu/lost-in-the-middle/main/qa_data/20_total_documents/"
    "nq-open-20_total_documents_gold_at_0.jsonl.gz"
)


@dataclass(frozen=True)
class NQOpen(Dataset):
    """The 2,655 questions with 20 documents each, the gold one (`ctxs[i].isgold`) at any place.

    The official files differ in the gold document's place alone, so the first of them serves for every place:
    `shuffle=False, gold_position=9` gives the file `..._gold_at_9`. Superposition Prompting (section 4.1) shuffles.
    """

    preamble: ClassVar[str] = SEARCH_RESULTS
    metrics: ClassVar[tuple[str, ...]] = ("best_subspan_em", "kept_gold_recall")
    questions: ClassVar[int | None] = 2655
    counts: ClassVar[str | None] = "nq_open"
    archive: ClassVar[tuple[str, float] | None] = ("nq_open", 0.01)
    shuffle: bool = True  # put each question's documents in a fixed random order
    gold_position: int | None = None  # then move the gold document to this place, from 0; None leaves it
    documents: int | None = None  # keep so many: the gold one and the first others; None: all
    joined: int = 1  # join so many documents, as they then stand, to one

    def __post_init__(self) -> None:
        check_counts("nq_open", self.documents, self.joined)
        if not isinstance(self.shuffle, bool):
            raise UserError(f"dataset nq_open: shuffle must be true or false, not {self.shuffle!r}")
        place = self.gold_position
        if place is not None and (type(place) is not int or place < 0):
            raise UserError(f"dataset nq_open: gold_position must be a non-negative integer, not {place!r}")

    def default_path(self) -> Path:
        from ragauge import assets

        try:
            return assets.fetch(_SOURCE)
        except UserError as error:
            raise out_of_reach(self.name, _SOURCE, error) from error

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        question = field(record, "question", str, place)
        contexts = objects(record, "ctxs", place)
        example = Example(
            key=hashlib.sha256(question.encode()).hexdigest()[:16],  # the official records have no identifier
            question=question,
            documents=tuple(Document(field(c, "title", str, at), field(c, "text", str, at)) for c, at in contexts),
            answers=strings(record, "answers", place),
            gold=tuple(i for i, (c, at) in enumerate(contexts) if field(c, "isgold", bool, at)),
        )
        example = fewer(example, self.documents, place)
        return joined(reordered(example, self._order(example, place)), self.joined)

    def _order(self, example: Example, place: str) -> list[int]:
        """The former place of each document, in the new order."""
        count = len(example.documents)
        order = shuffled_order(count, self.seed, example.key) if self.shuffle else list(range(count))
        if self.gold_position is None:
            return order
        if len(example.gold) != 1:
            raise UserError(
                f"{place}: gold_position requires exactly one document with isgold, not {len(example.gold)}"
            )
        if self.gold_position >= count:
            raise UserError(f"{place}: gold_position {self.gold_position} is beyond the {count} documents")
        order.remove(example.gold[0])
        order.insert(self.gold_position, example.gold[0])
        return order
