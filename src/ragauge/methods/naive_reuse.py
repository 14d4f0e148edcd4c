"""Naive reuse of stored documents: moved to their places, nothing read again."""

from dataclasses import dataclass, replace

from ragauge.engines.protocol import Capabilities, Capability, SpanEngine
from ragauge.methods.base.stored import Reuse
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class NaiveReuse(Reuse):
    """Every document is read alone and stored; in a prompt its keys are moved to where they stand
    there.

    The lower anchor of EPIC, CacheBlend, ProphetKV and FusionRAG ("full reuse", "full KV reuse").
    Positions are the plain prompt's; what a document says of others is missing. Requires caches
    whose keys can be moved: rotated ones are rotated on, ALiBi's stay as they are.

    On a model that was trained so it is Block-Attention (Ma et al., ICLR 2025, arXiv 2409.15355,
    section 2; catalog: block-attention-8b) and TurboRAG with reordered positions (Lu et al., 2024,
    arXiv 2410.07590, section 3), whose documents stand between `<|doc_start|>` and `<|doc_end|>`.
    """

    begin: str = ""  # what every document begins with
    end: str = ""  # what every document ends with

    def required(self) -> Capabilities:
        return self.requires | ({Capability.TEXT} if self.begin or self.end else set())

    def delimited(self, engine: SpanEngine, prompt: Prompt) -> Prompt:
        if not (self.begin or self.end):
            return prompt
        begin, end = (
            engine.tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (self.begin, self.end)
        )
        return replace(prompt, documents=[[*begin, *ids, *end] for ids in prompt.documents])
