"""A prompt: one question's segments as token ids, before any method has arranged them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.errors import UserError
from ragauge.prompts.templates import document_text, query_text, wrapper


@dataclass(frozen=True)
class Prompt:
    """Segments are tokenised one by one and joined as ids, so that a cached segment is the same in every prompt."""

    opening: list[int]  # the template's words before the user's turn
    preamble: list[int]  # the opening and the data set's instruction
    documents: list[list[int]]
    query: list[int]
    task: list[int]  # what follows the query and asks for the answer
    question: str = ""
    document_texts: tuple[str, ...] = ()  # as the prompt shows them, for rankers
    gold: tuple[int, ...] = ()

    @property
    def sha256(self) -> str:
        """Hash of the token ids of all segments."""
        segments = [self.preamble, self.documents, self.query, self.task]
        return hashlib.sha256(json.dumps(segments).encode()).hexdigest()

    def token_counts(self) -> dict[str, Any]:
        """Tokens by segment."""
        return {
            "preamble": len(self.preamble),
            "documents": [len(d) for d in self.documents],
            "query": len(self.query),
            "task": len(self.task),
        }


def build_prompt(
    question: str,
    documents: Sequence[tuple[str, str]],
    *,
    instruction: str,
    template: str,
    tokenizer: Any,
    gold: Sequence[int] = (),
) -> Prompt:
    """The prompt of a question over (title, text) documents, under a data set's instruction and a model's template.

    Raises:
        UserError: a segment has no tokens; unknown template.
    """
    opening, task = wrapper(template, tokenizer)
    texts = tuple(document_text(title, text) for title, text in documents)

    def ids(text: str, first: bool = False) -> list[int]:
        special = first and template != "chat"  # a chat template writes its own begin-of-text
        found: list[int] = tokenizer(text, add_special_tokens=special)["input_ids"]
        return found

    prompt = Prompt(
        opening=ids(opening, first=True),
        preamble=ids(f"{opening}{instruction}\n\n", first=True),
        documents=[ids(text + "\n") for text in texts],
        query=ids(query_text(question)),
        task=ids(task),
        question=question,
        document_texts=texts,
        gold=tuple(gold),
    )
    if not (prompt.preamble and prompt.query and prompt.task and all(prompt.documents)):
        raise UserError(f"question {question!r}: a segment of its prompt has no tokens")
    return prompt
