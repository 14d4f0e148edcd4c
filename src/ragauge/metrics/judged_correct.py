"""The opinion of a language model about an answer."""

from ragauge.metrics.base import RecordFields


def score(record: RecordFields) -> float | None:
    """1.0 if a judge called the answer correct, 0.0 if it called it incorrect. Reads `judged`, the
    judge's label, which does not stand in a record: None without it. It is an opinion: how often it
    is right is known only where answers are (`study_answers`).
    """
    label = record.get("judged")
    return None if label is None else float(label == "correct")
