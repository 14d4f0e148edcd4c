"""Evidence that a long-context model generates without constraints, as CFIC's chunking-free
baselines do.
"""

from dataclasses import dataclass

from ragauge.engines.protocol import ANSWERING, Limits, SpanEngine
from ragauge.methods.base.grounding import Finding, Grounding, finder_of
from ragauge.methods.base.method import Answer, Evidence
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveInt


@dataclass(frozen=True)
class FreeExtraction(Finding):
    """CFIC's request to the same cached document, answered by greedy decoding that nothing
    constrains.

    Vicuna, LongChat and LongAlpaca in the paper's Table 3; on CFIC's own model it is CFIC without
    its two decoding strategies in Tables 4 and 6. Every generated sentence is a piece of evidence;
    one that occurs verbatim in no document has no position. The answer is generated from all of
    them, as generated. An engine without caches, as for the GPTs of Table 5, reads document and
    request as one prompt.
    """

    requires = ANSWERING

    volume: PositiveInt = 256  # tokens of evidence at most

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Grounding:
        return self.read_documents(
            engine, prompt, positions=self.volume, slots=self.volume, lower="volume"
        )

    def find(self, engine: SpanEngine, state: Grounding, prompt: Prompt) -> tuple[Evidence, ...]:
        """Return the evidence as it was written."""
        return state.written(finder_of(engine), prompt, self.volume)

    def answer(
        self, engine: SpanEngine, state: Grounding, prompt: Prompt, limits: Limits
    ) -> Answer:
        return state.answer(engine, prompt, self.find(engine, state, prompt), limits)
