"""Okapi BM25 over the documents of one question (Robertson and Zaragoza, 2009), scored by bm25s."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_WORD = re.compile(r"\w+")


def rank(query: str, documents: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """Scores of the documents, the statistics taken from these documents alone.

    score(d) = sum over the query's words w of idf(w) * tf / (tf + k1 * (1 - b + b * |d| / mean |d|)) with
    idf(w) = log(1 + (N - df + 1/2) / (df + 1/2)). This idf is Okapi's with 1 added inside the logarithm (as Lucene
    has it): Okapi's own is negative for a word in more than half of the documents, which happens all the time among
    20 documents retrieved for one question. Words are runs of letters and digits in lower case, without stop words
    or stemming; a word that the query repeats counts as often.

    Returns:
        (document,) float64; all zero where no word of the query occurs.
    """
    import bm25s

    words = [_words(document) for document in documents]
    vocabulary = {word for document in words for word in document}
    asked = [word for word in _words(query) if word in vocabulary]
    if not asked:
        return np.zeros(len(documents))
    index = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    index.index(words, show_progress=False)
    return np.asarray(index.get_scores(asked), dtype=np.float64)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
