"""CacheBlend (Yao et al., EuroSys 2025, arXiv 2405.16444)."""

from dataclasses import dataclass

from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.methods.base.method import Answer
from ragauge.methods.base.stored import Blending, Stored
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class CacheBlend(Blending):
    """Stored documents in their places; layers 0 and 1 read all tokens, later ones those that
    changed the most.

    Section 4 of the paper; released code: YaoJiayi/CacheBlend,
    `vllm_blend/vllm/model_executor/models/llama.py`; maintained: LMCache,
    `lmcache/v1/compute/blend/blender.py`. At layer 1 the new values are compared with the stored
    ones; the share `recompute` of the documents' tokens with the largest squared difference, and
    the question, go on through the other layers, in which they attend to the stored keys of the
    rest. One set serves all layers, as in the release (the paper's narrows from layer to layer).
    Two faults of the release are not reproduced: question tokens compete for places in the set, and
    its mask lets a chosen token see later ones. The preamble is exact as it is stored and is not
    read again. Requires ranges of layers, tokens rewritten in place and keys moved; a model of two
    layers reads all.
    """

    def answer(self, engine: SpanEngine, state: Stored, prompt: Prompt, limits: Limits) -> Answer:
        assembled = state.assembled(prompt, limits)
        return assembled.response(self.blended(assembled), limits)
