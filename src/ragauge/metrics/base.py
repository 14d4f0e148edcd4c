"""Metrics: one file each, with `score(record)` -> a number, or None if the metric does not apply to
the record.

Answers are compared as text by SQuAD's normalisation (Rajpurkar et al., EMNLP 2016), to the letter
in the metrics of papers; a study's own metrics compare words (`ragauge.text.words`).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragauge import registry
from ragauge.text import words

RecordFields = Mapping[str, Any]
"""The fields of a record."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def score(name: str, record: RecordFields) -> float | None:
    """One record's score: None if the metric does not apply, else 0 if the question failed.

    Args:
        name: a metric's name.
        record: the fields of a `ragauge.io.records.Record`; a metric reads only those that its
            docstring names.

    Raises:
        UserError: there is no metric of that name.
    """
    value = registry.module("metric", name).score(record)
    return 0.0 if value is not None and record.get("status") == "failed" else value


def limits(name: str) -> tuple[float, float] | None:
    """Return the least and the greatest score of a metric: its module's LIMITS, else 0 and 1."""
    return getattr(registry.module("metric", name), "LIMITS", (0, 1))


def with_failed_empty(
    records: Sequence[RecordFields], prediction_key: str = "prediction"
) -> list[RecordFields]:
    """Return the records of one method, each failed one with an empty prediction and without a
    piece of evidence.

    Its evidence is None where an answered record's is: the method looks for none, and metrics of it
    do not apply.
    """
    without = any(
        record.get("status") != "failed" and record.get("evidence") is None for record in records
    )
    empty: dict[str, Any] = {prediction_key: "", "evidence": None if without else []}
    return [
        {**record, **empty} if record.get("status") == "failed" else record for record in records
    ]


def wordless(answers: Iterable[str]) -> list[str]:
    """Return the answers that normalisation empties, such as "A" or "!!!": official formulas see
    them in every prediction.
    """
    return [answer for answer in answers if not normalise(answer)]


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and spare white space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def string_matches(record: RecordFields) -> list[float]:
    """For each answer 1.0 if it is part of the prediction regardless of case, else 0.0, as RULER's
    evaluation compares them: control characters are line ends.
    """
    prediction = re.sub(r"[\x00-\x1f]", "\n", record["prediction"].strip()).strip().lower()
    return [float(answer.lower() in prediction) for answer in record["answers"]]


def best_subspan(prediction: str, answers: Iterable[str]) -> float | None:
    """Return 1.0 if a normalised answer is a substring of the normalised prediction, else 0.0; None
    without an answer.
    """
    text = normalise(prediction)
    return max((float(normalise(answer) in text) for answer in answers), default=None)


def comparable(text: str) -> str:
    """The words of a text between blanks: one text holds another where this is part of that."""
    return f" {' '.join(words(text))} "


def token_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """F1 of the words that two texts share."""
    common = sum((Counter(predicted) & Counter(expected)).values())
    if not common:  # right only where both are empty
        return float(predicted == expected)
    precision = common / len(predicted)
    recall = common / len(expected)
    return 2 * precision * recall / (precision + recall)
