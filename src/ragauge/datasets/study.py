"""The questions of `ragauge study`, each with the passages that retrieval found for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.datasets.base.dataset import SEARCH_RESULTS, Dataset, Example, example_of

RETRIEVAL = "retrieval.json"  # next to the questions: the ranks of their gold passages


@dataclass(frozen=True)
class StudyQuestions(Dataset):
    """Passages stand in the order of retrieval; gold are those with an answer. A question may have
    no known one.
    """

    preamble = SEARCH_RESULTS
    metrics = ("contains_answer", "f1")
    unlabelled = True

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        return example_of(record, place)
