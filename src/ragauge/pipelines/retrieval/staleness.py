"""How similar the chunks found by a stale query are to those of a fresh one (PipeRAG, appendix D.1
and Table 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.pipelines.database.database import Database
from ragauge.pipelines.database.embed import TextEncoder, normalised
from ragauge.pipelines.retrieval.retriever import Query, Searcher

STALE_TOKENS = (1, 2, 4, 8, 16, 32, 64)  # the paper's


@dataclass(frozen=True)
class Likeness:
    """One place of a text, with what its fresh and its stale queries find."""

    key: str  # of the text
    start: int  # the first token of the fresh query
    # nearest chunk of the fresh query, then of each stale one; -1 if nothing was found
    chunks: tuple[int, ...]
    # of each stale one's chunk with the fresh one's; None if either is missing
    cosine: tuple[float | None, ...]


@dataclass(frozen=True)
class Comparison:
    """The searches of a comparison, and the encoder that compares."""

    searcher: Searcher
    database: Database
    encoder: TextEncoder
    nprobe: int | None = None  # of a search; None: the index's own
    stale_tokens: tuple[int, ...] = STALE_TOKENS

    def compare(self, key: str, ids: Sequence[int]) -> list[Likeness]:
        """The likenesses of all places of one text; none if it is too short. Raises UserError: the
        retriever failed. Fresh queries begin a chunk apart, the first with room for the stalest one
        before it.
        """
        size = self.database.chunk_tokens
        late = (0, *self.stale_tokens)
        places = range(-(-max(late) // size) * size, len(ids) - size + 1, size)
        queries = [
            Query(
                tokens=tuple(ids[start - stale : start - stale + size]),
                k=1,
                nprobe=self.nprobe,
                continuation=0,
            )
            for start in places
            for stale in late
        ]
        nearest = [int(one.ids[0]) for one in self.searcher.search(queries)]
        vectors = self._vectors({chunk for chunk in nearest if chunk >= 0})
        likenesses = []
        for row, start in enumerate(places):
            fresh, *stale = chunks = nearest[row * len(late) : (row + 1) * len(late)]
            cosines = (
                None
                if -1 in (fresh, other)
                else 1.0
                if other == fresh
                else float(vectors[fresh] @ vectors[other])
                for other in stale
            )
            likenesses.append(Likeness(key, start, tuple(chunks), tuple(cosines)))
        return likenesses

    def _vectors(self, chunks: set[int]) -> dict[int, np.ndarray]:
        """The unit vector (dim,) of each chunk."""
        if not chunks:
            return {}
        ids = np.array(sorted(chunks))
        tokens = zip(self.database.tokens(ids), self.database.lengths(ids), strict=True)
        texts = [
            str(self.database.tokenizer.decode(row[:length].tolist())) for row, length in tokens
        ]
        return dict(zip(ids.tolist(), normalised(self.encoder.encode(texts)), strict=True))
