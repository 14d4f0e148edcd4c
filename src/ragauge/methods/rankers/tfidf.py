"""TF-IDF cosine over the documents of one question, by scikit-learn with its defaults.

Its own words of two letters or more stay: they are a baseline of Superposition Prompting (section
4.1.1), which cites the library.
"""

from collections.abc import Sequence

import numpy as np

from ragauge.methods.rankers.base import warn_of_ties


def rank(query: str, documents: Sequence[str]) -> np.ndarray:
    """Cosines of the query with the documents (document,) float64 in [0, 1], the vectorizer fitted
    on these documents alone; all zero where no word of the query occurs.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    analyze = vectorizer.build_analyzer()
    if not any(analyze(document) for document in documents):  # no word at all: nothing to fit on
        warn_of_ties("TF-IDF", query)
        return np.zeros(len(documents))
    vectors = vectorizer.fit_transform(documents)  # (document, word), rows of length 1
    scores = np.asarray((vectors @ vectorizer.transform([query]).T).toarray()[:, 0])
    if not scores.any():
        warn_of_ties("TF-IDF", query)
    return scores
