"""MuSiQue-Ans: questions that take two to four hops over 20 paragraphs (Trivedi et al., TACL 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.datasets.base.dataset import ArrangedDataset, Example, example_of, shuffled_order
from ragauge.errors import UserError
from ragauge.io.jsonl import field, strings

SHORT = " Answer with a name, a number or a short phrase alone, not with a sentence."


@dataclass(frozen=True)
class Musique(ArrangedDataset):
    """The development set, its paragraphs in the official order (which is random already),
    supporting ones gold.
    """

    preamble = (
        "You are a question-answering assistant, who is careful to reference source material. "
        "Use the source(s) below to answer the user question."
    )
    metrics = ("f1", "em", "best_subspan_em", "kept_gold_recall")
    multi_hop = True
    questions = 2417
    counts = "musique"
    archive = ("musique", 0.04)
    hub = {"path": "dgslibisey/MuSiQue", "split": "validation"}
    shuffle: bool = False  # put each question's paragraphs in a fixed random order
    short_answers: bool = False  # ask for the answer alone: F1 is of words, and readers explain

    @property
    def instruction(self) -> str:
        return f"{self.preamble}{SHORT * self.short_answers}"

    def order(self, example: Example, place: str) -> list[int]:
        order = super().order(example, place)
        return shuffled_order(len(order), self.seed, example.key) if self.shuffle else order

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        if not field(record, "answerable", bool, place):
            raise UserError(
                f"{place}: not answerable: from MuSiQue-Full, but this data set is MuSiQue-Ans"
            )
        answers = (field(record, "answer", str, place), *strings(record, "answer_aliases", place))
        answers = tuple(dict.fromkeys(answers))  # an alias may repeat the answer
        names = {"documents": "paragraphs", "text": "paragraph_text", "gold": "is_supporting"}
        return self.arranged(example_of(record, place, answers=answers, **names), place)
