"""Raw records: one JSON line a question, written as they are made, resumable, never rewritten."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """What one method variant did with one question. Metrics are computed from it later, without a model."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(description="the example's key in its data set")
    status: Literal["ok", "failed"]
    reason: str | None = Field(None, description="why the question failed")
    question: str
    answers: list[str]
    gold: list[int] = Field(description="indices of the gold documents, in the order the method was given them")
    documents: int = Field(description="how many documents the method was given")
    prompt_sha256: str = Field(description="hash of the token ids of all segments")
    tokens: dict[str, Any] = Field(
        default_factory=dict, description="token counts: preamble, documents (a list), query, task, generated"
    )
    kept: list[int] = Field(default_factory=list, description="documents the answer was generated from, in reading order")
    saliency: list[float | None] = Field(default_factory=list, description="one score a document; null where not scored")
    text: str = Field("", description="the generated text, whole")
    prediction: str = Field("", description="the answer taken from the text (before the first newline)")
    trace: list[dict[str, Any]] = Field(default_factory=list, description="cost.trace.Call, as JSON")
    cache_bytes: int | None = Field(None, description="largest size of the cached keys and values held at one time")
    offline_s: float | None = None
    online_s: float | None = None
    first_token_s: float | None = Field(None, description="online seconds until the first token was known")
