"""Token F1 as MuSiQue's official evaluation has it (Trivedi et al., TACL 2022; SQuAD's definition)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ragauge.metrics._text import best_over_answers, normalise


def score(record: Mapping[str, Any]) -> float | None:
    """The largest F1 of the prediction's words against those of an answer or alias, in [0, 1].

    Reads `prediction` and `answers`.
    """
    return best_over_answers(_f1, record["prediction"], record["answers"])


def _f1(prediction: str, answer: str) -> float:
    said, asked = normalise(prediction).split(), normalise(answer).split()
    if not said or not asked:  # nothing to share: right only where both are empty
        return float(said == asked)
    common = sum((Counter(said) & Counter(asked)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / len(asked)
    return 2 * precision * recall / (precision + recall)
