"""Naive RAG: everything in one prompt."""

from dataclasses import dataclass
from typing import Any

from ragauge.engines.protocol import Engine, Limits
from ragauge.methods.base.method import Answer, read_plain
from ragauge.methods.base.states import PlainPrompt
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class Naive(PlainPrompt):
    """All documents in the order given, one plain prompt, nothing cached (the paper's baseline of
    every speedup).
    """

    def answer(self, engine: Engine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        ids = read_plain(engine, prompt, prompt.documents, limits)
        return Answer(ids, kept=tuple(range(len(prompt.documents))))
