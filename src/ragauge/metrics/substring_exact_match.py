"""Whether any of the answers is part of the whole prediction: HELMET's metric of retrieval-augmented
generation (Yen et al., ICLR 2025; princeton-nlp/HELMET at 4526dfb, utils.py).
"""

from ragauge.metrics.base import RecordFields, best_subspan


def score(record: RecordFields) -> float | None:
    """1.0 if a normalised answer is a substring of the normalised prediction, else 0.0. Reads
    `prediction` and `answers`. The official code also scores what follows "Answer:", a part of the
    prediction, and takes the better one, which is never that.
    """
    return best_subspan(record["prediction"], record["answers"])
