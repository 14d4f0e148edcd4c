"""Questions of one's own, each with the passages that retrieval found for it: what `ragauge study` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragauge.datasets._base import SEARCH_RESULTS, Dataset, Document, Example
from ragauge.errors import UserError
from ragauge.io.jsonl import field, objects, strings

RETRIEVAL = "retrieval.json"  # beside the questions: what retrieval found of what they need


@dataclass(frozen=True)
class StudyQuestions(Dataset):
    """Passages stand in the order of retrieval, as a server would have them; gold are those that hold an answer.

    A question may have no known answer."""

    preamble: ClassVar[str] = SEARCH_RESULTS
    metrics: ClassVar[tuple[str, ...]] = ("best_subspan_em", "f1")
    unlabelled: ClassVar[bool] = True

    def default_path(self) -> Path:
        raise UserError("data set 'study' has no source of its own; give the file that `ragauge study` wrote as `data`")

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        documents = objects(record, "documents", place)
        return Example(
            key=field(record, "id", str, place),
            question=field(record, "question", str, place),
            documents=tuple(Document(field(d, "title", str, at), field(d, "text", str, at)) for d, at in documents),
            answers=strings(record, "answers", place),
            gold=tuple(i for i, (d, at) in enumerate(documents) if field(d, "is_gold", bool, at)),
        )
