"""Token F1 as MuSiQue's official evaluation has it (Trivedi et al., TACL 2022; SQuAD's definition)."""

from ragauge.metrics.base import RecordFields, normalise, token_f1


def score(record: RecordFields) -> float | None:
    """The largest F1 of the prediction's words against those of an answer or alias, in [0, 1].
    Reads `prediction` and `answers`.
    """
    predicted = normalise(record["prediction"]).split()
    return max(
        (token_f1(predicted, normalise(answer).split()) for answer in record["answers"]),
        default=None,
    )
