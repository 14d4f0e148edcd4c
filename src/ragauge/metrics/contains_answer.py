"""Whether any of the answers is part of the prediction, compared as a study compares texts."""

from ragauge.metrics.base import RecordFields, comparable


def score(record: RecordFields) -> float | None:
    """1.0 if an answer is a substring of the prediction's first line, both `comparable`, else 0.0.
    Reads `prediction` and `answers`. As `best_subspan_em`, with Unicode forms and punctuation of
    all scripts set aside; an answer of which nothing is left, such as "The" or "?", is in no
    prediction.
    """
    first_line = comparable(record["prediction"].split("\n")[0])
    answers = map(comparable, record["answers"])
    return max((float(bool(answer) and answer in first_line) for answer in answers), default=None)
