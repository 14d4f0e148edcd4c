"""CFIC's request for evidence: the words around a document, the same when a model is trained and when it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# For models that were not trained for it. The last line opens the response, so that a sentence follows it as it follows
# another sentence in the document: after a space.
INSTRUCTION = "Read the document below. It holds the answer to a question.\n\n"
REQUEST = "\n\nQuestion: {question}\nCopy the sentences of the document that answer the question."
CUE = "Evidence:"


def before_document(tokenizer: Any, opening: Sequence[int]) -> list[int]:
    """Token ids of all that precedes the document; `opening` are the template's words before the user's turn."""
    return [*opening, *token_ids(tokenizer, INSTRUCTION)]


def after_document(tokenizer: Any, question: str, task: Sequence[int]) -> list[int]:
    """Token ids from the document's end to where the evidence begins; `task` are the template's words in between."""
    return [*token_ids(tokenizer, REQUEST.format(question=question)), *task, *token_ids(tokenizer, CUE)]


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """A piece of a prompt as token ids, without special tokens around it."""
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found
