"""Whether any of the answers is part of the prediction, compared as a study compares texts."""

from ragauge.metrics.base import RecordFields, comparable


def score(record: RecordFields) -> float | None:
    """1.0 if the words of an answer follow one another in the prediction's first line, else 0.0.

    Reads `prediction` and `answers`. Words are those of `ragauge.text.words`: "no" is not in "known",
    nor "12.5 bar" in "125 bar", and "1,200" is "1200". An answer without a word, such as "?", is in
    no prediction.
    """
    first_line = comparable(record["prediction"].split("\n")[0])
    answers = map(comparable, record["answers"])
    return max(
        (float(bool(answer.strip()) and answer in first_line) for answer in answers), default=None
    )
