"""Okapi BM25 (Robertson and Zaragoza, 2009), over the documents of one question or over a whole corpus."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

Idf = Literal["rank_bm25", "lucene"]
Split = Literal["words", "white_space"]

K1, B, EPSILON = 1.5, 0.75, 0.25  # of rank_bm25's BM25Okapi
_WORD = re.compile(r"\w+")


def rank(query: str, documents: Sequence[str], *, idf: Idf = "rank_bm25", split: Split = "words") -> np.ndarray:
    """Scores of the documents, the statistics taken from these documents alone.

    score(d) = sum over the query's words w of idf(w) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean |d|)).
    No stop words, no stemming; a word that the query repeats counts as often.

    Args:
        idf: Okapi's log((N - df + 1/2) / (df + 1/2)) is negative for a word in more than half of the documents, which
            happens all the time among 20 documents retrieved for one question. `rank_bm25` (Brown, 2020; the library
            that Superposition Prompting cites for its baseline): such a word has EPSILON times the mean idf of all
            words. `lucene`: 1 is added inside the logarithm, and there is no factor k1 + 1.
        split: `words`: runs of letters and digits in lower case; `white_space`: what stands between white space, as
            written, in the paper's released code.

    Returns:
        (document,) float64; all zero where no word of the query occurs.
    """
    terms_of = terms if split == "words" else str.split
    words = [Counter(terms_of(document)) for document in documents]
    document_counts = Counter(word for counted in words for word in counted)  # in how many documents
    query_words = [word for word in terms_of(query) if word in document_counts]
    if not query_words:
        return np.zeros(len(documents))
    counts = np.array(list(document_counts.values()), dtype=np.float64)
    if idf == "lucene":
        weights = np.log1p((len(documents) - counts + 0.5) / (counts + 0.5))
    else:
        okapi = np.log(len(documents) - counts + 0.5) - np.log(counts + 0.5)
        weights = np.where(okapi < 0, EPSILON * okapi.mean(), okapi)
    weight = dict(zip(document_counts, weights, strict=True))
    lengths = np.array([counted.total() for counted in words], dtype=np.float64)
    frequency = np.array([[counted[word] for word in query_words] for counted in words], dtype=np.float64)
    saturated = frequency / (frequency + (K1 * (1 - B + B * lengths / lengths.mean()))[:, None])
    scale = K1 + 1 if idf == "rank_bm25" else 1.0
    scores: np.ndarray = scale * saturated @ np.array([weight[word] for word in query_words])
    return scores


def terms(text: str) -> list[str]:
    """The words of a text, as they are compared."""
    return _WORD.findall(text.lower())


class CorpusBM25:
    """BM25 over a whole corpus, by the library bm25s: k1 1.5, b 0.75, without English stop words."""

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        self._index = bm25s.BM25(k1=1.5, b=0.75)
        self._index.index(_without_stop_words(texts), show_progress=False)

    def scores(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Score all texts for each query: (text,)."""
        yield from map(self._index.get_scores, _without_stop_words(queries))


def _without_stop_words(texts: Sequence[str]) -> list[list[str]]:
    """Words of texts; among thousands of passages stop words only say that a query is a question."""
    import bm25s

    words: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words
