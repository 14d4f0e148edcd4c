"""The lower reference point: no documents at all."""

from dataclasses import dataclass
from typing import Any

from ragauge.engines.protocol import Engine, Limits
from ragauge.methods.base.method import Answer, Method
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class ClosedBook(Method):
    """The question alone, without the instruction, which mentions search results: what the model
    has memorised.
    """

    def answer(self, engine: Engine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        return Answer(engine.respond(prompt.as_one(engine.tokenizer), limits).ids)
