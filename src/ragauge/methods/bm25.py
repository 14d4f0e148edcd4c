"""BM25 retrieval, then a plain prompt."""

from dataclasses import dataclass

import numpy as np

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.ranked import Ranked, RankedState
from ragauge.methods.prompts import Prompt
from ragauge.methods.rankers.bm25 import Idf, Split, rank


@dataclass(frozen=True)
class BM25(Ranked):
    """Okapi BM25 over the question's own documents.

    With `idf: rank_bm25`, the default, it is the baseline of Superposition Prompting, section
    4.1.1: the library that the paper cites, at its defaults. `lucene` has no negative idf to
    replace.
    """

    idf: Idf = "rank_bm25"  # weight of words that are in more than half of the documents
    split: Split = "words"  # white_space: as in the released code, with case and punctuation

    def rank(self, engine: SpanEngine, state: RankedState, prompt: Prompt) -> np.ndarray:
        return rank(self.query_of(prompt), prompt.document_texts, idf=self.idf, split=self.split)
