"""MuSiQue-Ans: questions that take two to four hops over 20 paragraphs (Trivedi et al., TACL 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ragauge.datasets._base import Dataset, Document, Example, check_counts, fewer, joined
from ragauge.errors import UserError
from ragauge.io.jsonl import field, objects, strings


@dataclass(frozen=True)
class Musique(Dataset):
    """The development set, its paragraphs in the official order (which is random already), supporting ones gold."""

    preamble: ClassVar[str] = (
        "You are a question-answering assistant, who is careful to reference source material. "
        "Use the source(s) below to answer the user question."
    )
    metrics: ClassVar[tuple[str, ...]] = ("f1", "em", "kept_gold_recall")
    multi_hop: ClassVar[bool] = True
    questions: ClassVar[int | None] = 2417
    counts: ClassVar[str | None] = "musique"
    archive: ClassVar[tuple[str, float] | None] = ("musique", 0.04)
    hub: ClassVar[Mapping[str, Any]] = {"path": "dgslibisey/MuSiQue", "split": "validation"}
    documents: int | None = None  # keep so many: the gold ones and the first others; None: all
    joined: int = 1  # join so many adjacent documents to one

    def __post_init__(self) -> None:
        check_counts("musique", self.documents, self.joined)

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        if not field(record, "answerable", bool, place):
            raise UserError(f"{place}: not answerable: from MuSiQue-Full, but this data set is MuSiQue-Ans")
        paragraphs = objects(record, "paragraphs", place)
        answers = (field(record, "answer", str, place), *strings(record, "answer_aliases", place))
        example = Example(
            key=field(record, "id", str, place),
            question=field(record, "question", str, place),
            documents=tuple(
                Document(field(p, "title", str, at), field(p, "paragraph_text", str, at)) for p, at in paragraphs
            ),
            answers=tuple(dict.fromkeys(answers)),  # an alias may repeat the answer
            gold=tuple(i for i, (p, at) in enumerate(paragraphs) if field(p, "is_supporting", bool, at)),
        )
        return joined(fewer(example, self.documents, place), self.joined)
