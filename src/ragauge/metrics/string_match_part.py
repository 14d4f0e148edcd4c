"""Whether any answer is part of the prediction: RULER's score of question answering (NVIDIA/RULER
at c3f5e3b, scripts/eval).
"""

from ragauge.metrics.base import RecordFields, string_matches


def score(record: RecordFields) -> float | None:
    """1.0 if an answer is a substring of the prediction regardless of case, else 0.0. Reads
    `prediction` and `answers`.
    """
    return max(string_matches(record), default=None)
