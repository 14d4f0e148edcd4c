"""The questions of `ragauge study`, each with the passages that retrieval found for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.datasets.base.dataset import SEARCH_RESULTS, Dataset, Example, example_of
from ragauge.errors import UserError

RETRIEVAL = "retrieval.json"  # next to the questions: the ranks of their gold passages


@dataclass(frozen=True)
class StudyQuestions(Dataset):
    """Passages stand in the order of retrieval; gold are those with an answer. A question may have
    no known one.
    """

    preamble = SEARCH_RESULTS
    metrics = ("contains_answer", "f1")
    unlabelled = True

    def default_path(self) -> Path:
        raise UserError(
            "data set 'study' has no source of its own; give the file that `ragauge study` wrote as `data`"
        )

    def parse(self, record: Mapping[str, Any], place: str) -> Example:
        return example_of(record, place)
