"""The retriever: queries in, neighbours with their continuations out, every stage timed.

`Retriever` works in this process; the retrieval service answers the same `Query` with the same `Neighbours`, so that
callers take either for `Searcher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ragauge.errors import UserError

STAGES = ("encode", "search", "lookup")  # keys of Neighbours.seconds; a service adds its own


@dataclass(frozen=True)
class Query:
    """One question to the database: tokens of the database's tokenizer, or text; one of the two.

    At most one of `nprobe` and `budget_s` is given; with neither, the index's own default holds.
    """

    tokens: Sequence[int] | None = None  # detokenised by the database's tokenizer before they are encoded
    text: str | None = None
    k: int = 2  # neighbours
    nprobe: int | None = None  # inverted lists scanned
    budget_s: float | None = None  # seconds for the whole call: the largest nprobe that is predicted to fit is taken
    continuation: int = 1  # chunks after each neighbour, of the same document; stale queries need 2 (PipeRAG, 4.1)

    def __post_init__(self) -> None:
        """Raises UserError on a query that cannot be asked."""
        if (self.tokens is None) == (self.text is None):
            raise UserError("query: give tokens or text, one of the two")
        if not (self.tokens if self.text is None else self.text.strip()):
            raise UserError(f"query: the {'tokens are' if self.text is None else 'text is'} empty")
        if self.k < 1:
            raise UserError(f"query: k must be at least 1, not {self.k}")
        if self.continuation < 0:
            raise UserError(f"query: continuation must be a number of chunks, not {self.continuation}")
        if self.nprobe is not None and self.budget_s is not None:
            raise UserError("query: give nprobe or budget_s, not both")
        if self.nprobe is not None and self.nprobe < 1:
            raise UserError(f"query: nprobe must be at least 1, not {self.nprobe}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UserError(f"query: budget_s must be positive, not {self.budget_s}")


@dataclass(frozen=True)
class Neighbours:
    """What was found for one query, nearest first. A place without a neighbour has id -1 and no tokens.

    Tokens beyond a length are 0.
    """

    ids: np.ndarray  # (k,) int64: chunk in the database; of a filled index the real chunk a vector was drawn around
    distances: np.ndarray  # (k,) float32: squared L2, or inner product; infinite where there is no neighbour
    documents: np.ndarray  # (k,) int64: number of the chunk's document in the database
    tokens: np.ndarray  # (k, chunk) int32
    lengths: np.ndarray  # (k,) int32: tokens of each chunk; a document's last may be short
    continuations: np.ndarray  # (k, continuation * chunk) int32: the next chunks of the same document
    continuation_lengths: np.ndarray  # (k,) int32: 0 where the document ends
    nprobe: int  # inverted lists that were scanned
    seconds: dict[str, float]  # by stage, of the whole call that the query was part of


class Searcher(Protocol):
    """What generation asks: the retriever of this process, or a client of the service."""

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """The neighbours of each query, in order. Raises UserError on a query that cannot be asked."""
        ...
