"""How answers are compared as text: SQuAD's normalisation (Rajpurkar et al., EMNLP 2016)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and spare white space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def best_over_answers(metric: Callable[[str, str], float], prediction: str, answers: Iterable[str]) -> float | None:
    """The largest `metric(prediction, answer)` over the answer and its aliases; None if there is no answer."""
    return max((metric(prediction, answer) for answer in answers), default=None)


def token_f1(prediction: str, answer: str) -> float:
    """F1 of the normalised words that two texts share."""
    predicted, expected = normalise(prediction).split(), normalise(answer).split()
    if not predicted or not expected:  # nothing to share: right only where both are empty
        return float(predicted == expected)
    common = sum((Counter(predicted) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
