"""Exact match as MuSiQue's official evaluation has it (Trivedi et al., TACL 2022; SQuAD's
definition).
"""

from ragauge.metrics.base import RecordFields, normalise


def score(record: RecordFields) -> float | None:
    """1.0 if the normalised prediction equals a normalised answer or alias, else 0.0. Reads
    `prediction` and `answers`.
    """
    predicted = normalise(record["prediction"])
    return max(
        (float(normalise(answer) == predicted) for answer in record["answers"]), default=None
    )
