"""Whether any of the answers is part of the prediction (Lost in the Middle, Liu et al., TACL 2024, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.metrics._text import best_over_answers, normalise


def score(record: Mapping[str, Any]) -> float | None:
    """1.0 if a normalised answer is a substring of the normalised prediction, else 0.0.

    Reads `prediction` and `answers`. As in the official evaluation only the prediction's first line counts: a model
    could otherwise win by repeating its documents.
    """
    first_line = record["prediction"].split("\n")[0]
    return best_over_answers(_contains, first_line, record["answers"])


def _contains(prediction: str, answer: str) -> float:
    return float(normalise(answer) in normalise(prediction))
