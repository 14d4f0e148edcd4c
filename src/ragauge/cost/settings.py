"""What the latency protocol measures: the section `latency` of an experiment's configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TRIALS, WARMUP = 30, 2  # as Superposition Prompting, section 4.2, has it: the median of 30


class LatencySettings(BaseModel):
    """The latency protocol: methods interleaved, alone on the machine, medians over trials."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    methods: list[str] = Field(min_length=1, description="names of the variants that are timed")
    dataset: str = Field(description="label of the data set whose token counts the prompts have")
    trials: int = Field(TRIALS, ge=1, description="timed trials per variant")
    warmup: int = Field(WARMUP, ge=0, description="untimed trials per variant before them")
    new_tokens: int = Field(5, ge=1, description="tokens generated in a trial")
    more_new_tokens: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="further response lengths to time; tables show new_tokens"
    )
    threads: int | None = Field(None, ge=1, description="threads of the decoder; default: all cores")
    documents: Literal["ready", "cold"] = Field(
        "ready",
        description=(
            "ready: documents are in memory when the question arrives; cold: computing them, writing them to disk and "
            "reading them back is timed as well (docs/document-store.md)"
        ),
    )

    @property
    def all_new_tokens(self) -> list[int]:
        """The numbers of tokens of a response, the tables' first."""
        return [self.new_tokens, *self.more_new_tokens]
