"""CacheBlend (Yao et al., EuroSys 2025, arXiv 2405.16444)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ragauge.engines.protocol import Extension, Limits, SpanEngine
from ragauge.methods.base import Answer
from ragauge.methods.base.stored import Assembled, Reuse, Stored, largest
from ragauge.prompts import Prompt

if TYPE_CHECKING:
    from torch import Tensor

CHECK = 1  # the layer whose keys or values are compared


@dataclass(frozen=True)
class CacheBlend(Reuse):
    """Stored documents in their places; layers 0 and 1 read all tokens, later ones those that changed the most.

    Section 4 of the paper; released code: YaoJiayi/CacheBlend, `vllm_blend/vllm/model_executor/models/llama.py`;
    maintained: LMCache, `lmcache/v1/compute/blend/blender.py`. At layer 1 the new values are compared with the stored
    ones; the share `recompute` of the documents' tokens with the largest squared difference, and the question, go on
    through the other layers, in which they attend to the stored keys of the rest. One set serves all layers, as in the
    release (the paper's narrows from layer to layer). Two faults of the release are not reproduced: question tokens
    compete for places in the set, and its mask lets a chosen token see later ones. The preamble is exact as it is
    stored and is not read again. Requires ranges of layers, tokens rewritten in place and keys moved; a model of two
    layers reads all.
    """

    recompute: Annotated[float, Field(ge=0, le=1)] = 0.16  # share of the documents' tokens
    criterion: Literal["value", "key"] = "value"  # what is compared: values (paper and release), rotated keys (LMCache)

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        assembled = state.assembled(prompt, limits)
        return assembled.response(self.blended(assembled), limits)

    def blended(self, assembled: Assembled) -> Extension:
        """Read all documents in the first layers, what changed most in the others, and the question, if any, in all."""
        engine, last = assembled.engine, assembled.engine.shape.layers
        stage, logits = ("prompt", True) if assembled.question else ("again", False)
        span, checked = assembled.document_slots, (0, min(CHECK + 1, last))
        everything = assembled.row(range(*span))
        if checked == (0, last):
            return engine.extend(assembled.cache, [everything], stage=stage, last_logits=logits)
        stored = self._compared(assembled).clone()
        read = engine.extend(assembled.cache, [everything], stage="check", layers=checked)
        changed = (self._compared(assembled).float() - stored.float()).pow(2).sum((0, 2))
        chosen = largest(engine, changed, int(self.recompute * len(span)))
        question = range(len(span), len(span) + len(assembled.question))
        row = assembled.row([span.start + i for i in chosen], read.states[0][[*chosen, *question]])
        return engine.extend(assembled.cache, [row], stage=stage, layers=(checked[1], last), last_logits=logits)

    def _compared(self, assembled: Assembled) -> Tensor:
        """The documents' keys or values at the layer where they are compared: (kv_head, token, dim)."""
        cache, span = assembled.cache, assembled.document_slots
        layers = cache.v if self.criterion == "value" else cache.k
        return layers[CHECK][:, span.start : span.stop]
