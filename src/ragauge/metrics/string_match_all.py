"""The share of the answers that are part of the prediction: RULER's score of all tasks but question
answering (NVIDIA/RULER at c3f5e3b, scripts/eval).
"""

from statistics import fmean

from ragauge.metrics.base import RecordFields, string_matches


def score(record: RecordFields) -> float | None:
    """Answers in the prediction over answers, in [0, 1], regardless of case. Reads `prediction` and
    `answers`, all of which a complete answer lists.
    """
    found = string_matches(record)
    return fmean(found) if found else None
