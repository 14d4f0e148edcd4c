"""Prefix-Scale-Recompute (Cestola et al., 2026, arXiv 2603.20218): three repairs of stored
documents together.
"""

from dataclasses import dataclass, replace
from typing import Literal

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base.method import Answer
from ragauge.methods.base.stored import Blending, Stored, read_apart
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveFloat, Share


@dataclass(frozen=True)
class PrefixScaleRecompute(Blending):
    """Stored documents without attention sinks, partly read again, on which the question attends
    with a temperature.

    What a study of chunk caching proposes: EPIC's LegoLink-0 (documents are stored behind the
    prompt's first token, which is dropped), CacheBlend's selection by keys at 15%, APE's
    temperature and scale. No code was found; the parts are those that papers citing the study and
    summaries of it name. Ours: documents are read again before and without the temperature, which
    the question and the response have, as in APE; its values are APE's. One part alone is `epic`
    with 0 tokens, `cache_blend`, or `naive_reuse` with APE's attention. Requires what these
    require.
    """

    # share of the documents' tokens; 0: none, in no layer
    recompute: Share = 0.15
    criterion: Literal["value", "key"] = "key"
    prefix: bool = True  # read each document behind the prompt's first token, then drop that token
    temperature: PositiveFloat = 0.9  # of the scores of documents' keys
    scale: PositiveFloat = 0.9  # of the logarithm of their summed weight

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Stored:
        return read_apart(engine, prompt, behind=int(self.prefix))

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        assembled = state.assembled(prompt, limits)
        if int(self.recompute * len(assembled.document_slots)):
            self.blended(replace(assembled, question=[]))
        if (self.temperature, self.scale) != (1, 1):
            assembled.cache.temper(assembled.document_slots, self.temperature, self.scale)
        return assembled.answer((), limits)
