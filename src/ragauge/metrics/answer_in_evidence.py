"""Recall of the answer: whether the evidence contains it, regardless of what the model answers."""

from ragauge.metrics.base import RecordFields, normalise


def score(record: RecordFields) -> float | None:
    """1.0 where an answer or alias stands in a piece of evidence as whole words, both normalised,
    else 0.0.

    Reads `evidence` and `answers`. Whole words, since evidence is long: "5" does not stand in
    "1950". None where the method looks for no evidence, or where no answer has a word (LongBench's
    free answers usually stand nowhere literally and score 0).
    """
    wanted = [f" {words} " for words in map(normalise, record["answers"]) if words]
    if record["evidence"] is None or not wanted:
        return None
    texts = [f" {normalise(piece['text'])} " for piece in record["evidence"]]
    return float(any(words in text for words in wanted for text in texts))
