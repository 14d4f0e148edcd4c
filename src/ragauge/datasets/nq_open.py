"""NQ-Open as Lost in the Middle gives it: one gold passage among retrieved distractors (Liu et al.,
TACL 2024).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.datasets.base.dataset import (
    SEARCH_RESULTS,
    ArrangedDataset,
    Example,
    example_of,
    out_of_reach,
    shuffled_order,
)
from ragauge.errors import UserError
from ragauge.io.jsonl import field
from ragauge.options import NaturalInt

# No hub holds these files whole; their repository does.
_SOURCE = (
    "https://raw.githubusercontent.com/nelson-liu/lost-in-the-middle/main/qa_data/20_total_documents/"
    "nq-open-20_total_documents_gold_at_0.jsonl.gz"
)


@dataclass(frozen=True)
class NQOpen(ArrangedDataset):
    """The 2,655 questions with 20 documents each, the gold one (`ctxs[i].isgold`) at any place.

    The official files differ in the gold document's place alone, so the first of them serves for
    every place: `shuffle=False, gold_position=9` gives the file `..._gold_at_9`. Superposition
    Prompting (section 4.1) shuffles.
    """

    preamble = SEARCH_RESULTS
    metrics = ("best_subspan_em", "kept_gold_recall")
    questions = 2655
    counts = "nq_open"
    archive = ("nq_open", 0.01)
    shuffle: bool = True  # put each question's documents in a fixed random order
    # then move the gold document to this place, from 0; None leaves it
    gold_position: NaturalInt | None = None

    def default_path(self) -> Path:
        from ragauge.assets import resolver

        try:
            return resolver.fetch(_SOURCE)
        except UserError as error:
            raise out_of_reach(self.name, _SOURCE, error) from error

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        question = field(record, "question", str, place)
        # the official records have no identifier
        key = hashlib.sha256(question.encode()).hexdigest()[:16]
        return self.arranged(
            example_of(record, place, key=key, documents="ctxs", gold="isgold"), place
        )

    def order(self, example: Example, place: str) -> list[int]:
        count = len(example.documents)
        order = (
            shuffled_order(count, self.seed, example.key) if self.shuffle else list(range(count))
        )
        if self.gold_position is None:
            return order
        if len(example.gold) != 1:
            raise UserError(
                f"{place}: gold_position requires exactly one document with isgold, "
                f"not {len(example.gold)}"
            )
        if self.gold_position >= count:
            raise UserError(
                f"{place}: gold_position {self.gold_position} is beyond the {count} documents"
            )
        order.remove(example.gold[0])
        order.insert(self.gold_position, example.gold[0])
        return order
