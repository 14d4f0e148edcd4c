"""Okapi BM25 (Robertson and Zaragoza, 2009), over the documents of one question or over a whole
corpus.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from ragauge.methods.rankers.base import warn_of_ties
from ragauge.text import search_terms, terms

Idf = Literal["rank_bm25", "lucene"]
Split = Literal["words", "white_space"]

K1 = 1.5
B = 0.75
EPSILON = 0.25  # of rank_bm25's BM25Okapi


def rank(
    query: str, documents: Sequence[str], *, idf: Idf = "rank_bm25", split: Split = "words"
) -> np.ndarray:
    """Scores of the documents, the statistics taken from these documents alone.

    score(d) = sum over the query's words w of idf(w) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d|
    / mean |d|)). No stop words, no stemming; a word that the query repeats counts as often.

    Args:
        idf: Okapi's log((N - df + 1/2) / (df + 1/2)) is negative for a word in more than half of
            the documents, which happens all the time among 20 documents retrieved for one question.
            `rank_bm25` (Brown, 2020; the library that Superposition Prompting cites for its
            baseline): such a word has EPSILON times the mean idf of all words. `lucene`: 1 is added
            inside the logarithm, and there is no factor k1 + 1.
        split: `words`: see `text.terms`, which stays as the paper's protocol and committed results
            have it; `white_space`: what stands between white space, as written, in the paper's
            released code.

    Returns:
        (document,) float64; all zero where no word of the query occurs.
    """
    terms_of = terms if split == "words" else str.split
    words = [Counter(terms_of(document)) for document in documents]
    # in how many documents
    document_counts = Counter(word for counted in words for word in counted)
    query_words = [word for word in terms_of(query) if word in document_counts]
    if not query_words:
        warn_of_ties("BM25", query)
        return np.zeros(len(documents))
    counts = np.array(list(document_counts.values()), dtype=np.float64)
    if idf == "lucene":
        weights = np.log1p((len(documents) - counts + 0.5) / (counts + 0.5))
    else:
        okapi = np.log(len(documents) - counts + 0.5) - np.log(counts + 0.5)
        weights = np.where(okapi < 0, EPSILON * okapi.mean(), okapi)
    weight = dict(zip(document_counts, weights, strict=True))
    lengths = np.array([counted.total() for counted in words], dtype=np.float64)
    frequency = np.array(
        [[counted[word] for word in query_words] for counted in words], dtype=np.float64
    )
    saturated = frequency / (frequency + (K1 * (1 - B + B * lengths / lengths.mean()))[:, None])
    scale = K1 + 1 if idf == "rank_bm25" else 1.0
    return scale * saturated @ np.array([weight[word] for word in query_words])


class CorpusBM25:
    """BM25 over a whole corpus, by the library bm25s: k1 1.5, b 0.75, without English stop words."""

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        self._index = bm25s.BM25(k1=1.5, b=0.75)
        self._index.index(
            [_without_stop_words(text) or [""] for text in texts], show_progress=False
        )
        self._count = len(texts)

    def scores(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Score all texts for each query: (text,); all zero where no word of the query occurs."""
        for words in map(_without_stop_words, queries):
            yield self._index.get_scores(words) if words else np.zeros(self._count)


def _without_stop_words(text: str) -> list[str]:
    """Return the words of a text that a search matches, without those that only say that it is
    English.

    An "a" that `search_terms` leaves is a name, as in vitamin A, and not an article.
    """
    from bm25s.stopwords import STOPWORDS_EN

    stop_words = frozenset(STOPWORDS_EN) - {"a"}
    return [word for word in search_terms(text) if word not in stop_words]
