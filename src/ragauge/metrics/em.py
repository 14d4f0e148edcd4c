"""Exact match as MuSiQue's official evaluation has it (Trivedi et al., TACL 2022; SQuAD's definition)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.metrics._text import best_over_answers, normalise


def score(record: Mapping[str, Any]) -> float | None:
    """1.0 if the normalised prediction equals a normalised answer or alias, else 0.0.

    Reads `prediction` and `answers`.
    """
    return best_over_answers(_equals, record["prediction"], record["answers"])


def _equals(prediction: str, answer: str) -> float:
    return float(normalise(prediction) == normalise(answer))
