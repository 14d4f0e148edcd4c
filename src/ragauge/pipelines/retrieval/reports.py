"""Reports on retrieval, as they are written and read."""

from typing import Any, Self

from pydantic import BaseModel, Field, model_validator


class ComparedQueries(BaseModel):
    """One place of a text, with what its fresh and its stale queries find."""

    key: str = Field(description="of the text")
    start: int = Field(description="the first token of the fresh query")
    chunks: list[int] = Field(
        description="nearest chunk of the fresh query, then of each stale one; -1 if nothing was found"
    )
    cosine: list[float | None] = Field(
        description="of each stale one's chunk with the fresh one's; null if either is missing"
    )


class StalenessReport(BaseModel):
    """A comparison of what stale and fresh queries find, as it is written and read."""

    encoder: str = Field(description="compares the chunks")
    database: str = Field(description="label")
    index: str = Field(description="label")
    evaluation: str | None = Field(
        None, description="label of the set that was read; null: the database's held-out text"
    )
    tokens: int = Field(description="of a text")
    encoder_sha256: str | None = None
    nprobe: int
    filled: int | None = None
    texts: int = Field(description="that were compared in time")
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
