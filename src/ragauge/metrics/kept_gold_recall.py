"""The share of the gold documents that a method selected: the quality of its ranking, regardless of
the answer.
"""

from ragauge.metrics.base import RecordFields


def score(record: RecordFields) -> float | None:
    """Kept gold documents over gold documents, in [0, 1]. Reads `gold` and `kept` (indices of
    documents) and `documents` (how many the method was given). None where the question names no
    gold document or the method was given no document at all.
    """
    gold = set(record["gold"])
    if not gold or record.get("documents") == 0:
        return None
    return len(gold & set(record["kept"])) / len(gold)
