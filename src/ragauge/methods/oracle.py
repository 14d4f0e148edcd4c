"""The upper reference point: the gold documents alone."""

from dataclasses import dataclass
from typing import Any

from ragauge.engines.protocol import Engine, Limits
from ragauge.errors import UserError
from ragauge.methods.base.grounding import answer_from
from ragauge.methods.base.method import Answer, Evidence, Method, read_plain
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class Oracle(Method):
    """A plain prompt of the gold documents: what the model can do when retrieval is perfect.

    Where the data set says which stretches of them hold the answer (`wiki_long`: a section), of
    these alone.
    """

    def answer(self, engine: Engine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        if not prompt.gold:
            raise UserError("the question has no gold document for the oracle to read")
        if prompt.gold_sources:
            pieces = [Evidence.of(source, source.text) for source in prompt.gold_sources]
            return answer_from(engine, prompt, pieces, 0, limits)
        documents = [prompt.documents[i] for i in prompt.gold]
        return Answer(read_plain(engine, prompt, documents, limits), prompt.gold)
