"""Whether any of the answers is part of the prediction (Lost in the Middle, Liu et al., TACL 2024,
section 2.2).
"""

from ragauge.metrics.base import RecordFields, best_subspan


def score(record: RecordFields) -> float | None:
    """1.0 if a normalised answer is a substring of the normalised prediction, else 0.0. Reads
    `prediction` and `answers`. As in the official evaluation only the prediction's first line
    counts: a model could otherwise win by repeating its documents.
    """
    return best_subspan(record["prediction"].split("\n")[0], record["answers"])
