"""Metrics: one file each, with `score(record)` -> a number, or None if the metric does not apply to the record.

Answers are compared as text by SQuAD's normalisation (Rajpurkar et al., EMNLP 2016), to the letter in the metrics of
papers; a study's own comparison, `comparable`, sets more aside.
"""

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ragauge import registry
from ragauge.text import fold

Fields = Mapping[str, Any]
"""The fields of a record."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def score(name: str, record: Fields) -> float | None:
    """One record's score: None if the question failed or the metric does not apply.

    A server's response without an answer is wrong: 0.

    Args:
        name: a metric's name.
        record: the fields of a `ragauge.io.records.Record`; a metric reads only those that its docstring names.

    Raises:
        UserError: there is no metric of that name.
    """
    metric = registry.module("metric", name)
    failed = record.get("status") == "failed"
    if failed and not record.get("served"):
        return None
    value: float | None = metric.score(record)
    return 0.0 if failed and value is not None else value


def wordless(answers: Iterable[str]) -> list[str]:
    """The answers that normalisation empties, such as "A" or "!!!": official formulas see them in every prediction."""
    return [answer for answer in answers if not normalise(answer)]


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and spare white space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def comparable(text: str) -> str:
    """Normalise a text as a study compares it: as `normalise`, after `fold`, without punctuation of any script."""
    return normalise(text if text.isascii() else fold(text).translate(_all_punctuation()))


@cache
def _all_punctuation() -> dict[int, None]:
    """Map every punctuation character of Unicode to nothing."""
    return dict.fromkeys(i for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)).startswith("P"))


def token_f1(prediction: str, answer: str) -> float:
    """F1 of the normalised words that two texts share."""
    predicted, expected = normalise(prediction).split(), normalise(answer).split()
    common = sum((Counter(predicted) & Counter(expected)).values())
    if not common:  # right only where both are empty
        return float(predicted == expected)
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
