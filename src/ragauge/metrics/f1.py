"""Token F1 as MuSiQue's official evaluation has it (Trivedi et al., TACL 2022; SQuAD's definition)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.metrics._text import best_over_answers, token_f1


def score(record: Mapping[str, Any]) -> float | None:
    """The largest F1 of the prediction's words against those of an answer or alias, in [0, 1].

    Reads `prediction` and `answers`.
    """
    return best_over_answers(token_f1, record["prediction"], record["answers"])
