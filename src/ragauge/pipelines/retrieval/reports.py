"""Reports on retrieval, as they are written and read."""

from typing import Any, Self

from pydantic import BaseModel, model_validator


class ComparedQueries(BaseModel):
    """One place of a text, with what its fresh and its stale queries find."""

    key: str  # of the text
    start: int  # the first token of the fresh query
    # nearest chunk of the fresh query, then of each stale one; -1 if nothing was found
    chunks: list[int]
    # of each stale one's chunk with the fresh one's; null if either is missing
    cosine: list[float | None]


class StalenessReport(BaseModel):
    """A comparison of what stale and fresh queries find, as it is written and read."""

    encoder: str  # compares the chunks
    database: str  # label
    index: str  # label
    # label of the set that was read; null: the database's held-out text
    evaluation: str | None = None
    tokens: int  # of a text
    encoder_sha256: str | None = None
    nprobe: int
    filled: int | None = None
    texts: int  # that were compared in time
    stale_tokens: list[int]
    provenance: dict[str, Any] | None = None
    queries: list[ComparedQueries]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        size = len(self.stale_tokens)
        lengths = {(len(query.chunks), len(query.cosine)) for query in self.queries}
        if not size or lengths - {(size + 1, size)}:
            raise ValueError("queries without a cosine for each staleness")
        return self
