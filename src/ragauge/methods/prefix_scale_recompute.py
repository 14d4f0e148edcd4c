"""Prefix-Scale-Recompute (Cestola et al., 2026, arXiv 2603.20218): three repairs of stored documents together."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base import Answer
from ragauge.methods.base.stored import Stored, read_apart
from ragauge.methods.cache_blend import CacheBlend
from ragauge.prompts import Prompt


@dataclass(frozen=True)
class PrefixScaleRecompute(CacheBlend):
    """Stored documents without attention sinks, partly read again, on which the question attends with a temperature.

    What the study of chunk caching proposes after comparing the parts: EPIC's LegoLink-0 (a document is read behind the
    prompt's first token, which is dropped), CacheBlend's selection by keys, and APE's temperature and scale. Its text
    could not be read here; the parts are named so in arXiv 2603.20218's abstract and by papers that cite it, no code was
    found. Ours are the order (documents are read again first, without the temperature, which the question and the
    response alone have, as in APE) and the temperature and scale, APE's own defaults. With one part alone it is that
    part: `epic` with 0 tokens, `cache_blend`, or APE's attention over `naive_reuse`. Requires what these require.
    """

    recompute: Annotated[float, Field(ge=0, le=1)] = 0.15  # share of the documents' tokens; 0: none, in no layer
    criterion: Literal["value", "key"] = "key"
    prefix: bool = True  # read each document behind the prompt's first token, then drop that token
    temperature: Annotated[float, Field(gt=0)] = 0.9  # of the scores of documents' keys
    scale: Annotated[float, Field(gt=0)] = 0.9  # of the logarithm of their summed weight

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, prompt, behind_first=self.prefix)

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        assembled = state.assembled(prompt, limits)
        if int(self.recompute * len(assembled.document_slots)):
            self.blended(replace(assembled, question=[]))
        if (self.temperature, self.scale) != (1, 1):
            assembled.cache.temper(assembled.document_slots, self.temperature, self.scale)
        return assembled.answer((), limits)
