"""How answers are compared as text: SQuAD's normalisation (Rajpurkar et al., EMNLP 2016)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""The fields of a record."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and spare white space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(prediction: str, answer: str) -> float:
    """F1 of the normalised words that two texts share."""
    predicted, expected = normalise(prediction).split(), normalise(answer).split()
    common = sum((Counter(predicted) & Counter(expected)).values())
    if not common:  # right only where both are empty
        return float(predicted == expected)
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
