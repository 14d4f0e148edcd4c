"""The length of the evidence, at which baselines are compared."""

from ragauge.metrics.base import RecordFields

LIMITS = None  # a count, not a share


def score(record: RecordFields) -> float | None:
    """Tokens of all pieces of evidence, by the decoder's tokenizer; 0 if none was found. Reads
    `tokens`. None if the method looks for no evidence.
    """
    tokens = record["tokens"].get("evidence")
    return None if tokens is None else float(tokens)
