"""The whole document in the prompt, its middle left out where it is longer than the context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.engines.protocol import Engine, Limits
from ragauge.errors import UserError
from ragauge.methods.base.method import Answer, Evidence, read_plain
from ragauge.methods.base.states import PlainPrompt
from ragauge.methods.prompts import Prompt, cut_middle
from ragauge.methods.prompts.templates import token_ids

SLACK = 8  # tokens by which two stretches tokenised separately may exceed their share of the whole


@dataclass(frozen=True)
class FullArticle(PlainPrompt):
    """All documents in one plain prompt, nothing cached, with LongBench's middle truncation; all of
    it is evidence.
    """

    def answer(self, engine: Engine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        documents: Sequence[list[int] | str] = prompt.documents
        shown = prompt.cut or prompt.sources
        truncated = prompt.truncated
        tokens = sum(map(len, prompt.documents))
        room = engine.max_context - limits.max_new_tokens - (prompt.total_tokens - tokens)
        if tokens > room:
            if engine.tokenizer is None:
                raise UserError(
                    f"the documents have {tokens} tokens, the context room for {room}; "
                    "to cut them needs their text"
                )
            ends = len(token_ids(engine.tokenizer, prompt.document_end))
            half = (room - SLACK) // 2 - ends
            if half < 1:
                raise UserError(
                    f"the model's context of {engine.max_context} tokens has no room for a document"
                )
            shown, truncated = cut_middle(prompt.sources, engine.tokenizer, half, half)
            documents = [source.shown + prompt.document_end for source in shown]
        ids = read_plain(engine, prompt, documents, limits)
        evidence = tuple(Evidence.of(source, source.text) for source in shown)
        shown_documents = tuple(sorted({source.document for source in shown}))
        return Answer(ids, shown_documents, evidence=evidence, truncated=truncated)
