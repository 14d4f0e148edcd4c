"""A prompt: one question's segments as token ids, before any method has arranged them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragauge.errors import UserError
from ragauge.prompts.sources import Source, cut_middle
from ragauge.prompts.templates import CONTEXT, INPUT, document_text, query_text, token_ids, wrapper

SLACK = 4  # tokens by which stretches tokenised separately may exceed their share of the whole text


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
    sources: tuple[Source, ...] = ()  # the complete documents
    gold_sources: tuple[Source, ...] = ()  # what of the gold documents holds the answer, where the data set says so
    cut: tuple[Source, ...] = ()  # what the prompt shows of documents that lost their middle; empty: all of them
    document_end: str = "\n"  # what the prompt has after every document
    truncated: int = 0  # tokens left out of the documents' middle

    @property
    def ending(self) -> list[int]:
        """Token ids of everything after the documents: the query and the task."""
        return [*self.query, *self.task]

    def plain(self, documents: Iterable[Sequence[int]]) -> list[int]:
        """Token ids of the whole prompt with these documents in place of its own."""
        return [*self.preamble, *(token for ids in documents for token in ids), *self.ending]

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

    @property
    def total_tokens(self) -> int:
        """Tokens of all segments."""
        return len(self.preamble) + sum(map(len, self.documents)) + len(self.query) + len(self.task)


def build_prompt(
    question: str,
    documents: Sequence[tuple[str, str]],
    *,
    instruction: str,
    template: str,
    tokenizer: Any,
    gold: Sequence[int] = (),
    gold_sources: Sequence[Source] = (),
    context: int | None = None,
) -> Prompt:
    """The prompt of a question over (title, text) documents, under a data set's instruction and a model's template.

    Args:
        instruction: what stands before the documents; or a whole prompt in LongBench's form, with `{context}` where
            they go and `{input}` where the question goes.
        context: tokens that a prompt in LongBench's form may have; the documents' middle is cut out beyond it.

    Raises:
        UserError: a segment has no tokens; unknown template; no room for any document in `context`.
    """
    opening, task = wrapper(template, tokenizer)
    sources = tuple(Source(i, title, text) for i, (title, text) in enumerate(documents))
    is_official = CONTEXT in instruction
    before, _, after = instruction.partition(CONTEXT)
    before, after = (before, after.replace(INPUT, question)) if is_official else (f"{before}\n\n", query_text(question))
    if is_official and after.endswith(task.strip()):  # the prompt asks for the answer in the template's words itself
        stem = after.removesuffix(task.strip()).rstrip()
        after, task = stem, after[len(stem) :]  # with the white space between them
    ids = partial(token_ids, tokenizer)
    preamble, query, task_ids = ids(f"{opening}{before}", template), ids(after), ids(task)
    shown, truncated = sources, 0
    if is_official and context is not None:
        room = _halves(context, len(preamble), len(query) + len(task_ids))
        shown, truncated = cut_middle(sources, tokenizer, *room)
    texts = tuple(s.shown if is_official else document_text(s.title, s.text) for s in sources)
    end = "" if is_official else "\n"
    if truncated:
        document_ids = [[t for s in shown if s.document == i for t in ids(s.shown)] for i in range(len(sources))]
    else:
        document_ids = [ids(text + end) for text in texts]
    prompt = Prompt(
        opening=ids(opening, template),
        preamble=preamble,
        documents=document_ids,
        query=query,
        task=task_ids,
        question=question,
        document_texts=texts,
        gold=tuple(gold),
        sources=sources,
        gold_sources=tuple(gold_sources),
        cut=shown if truncated else (),
        document_end=end,
        truncated=truncated,
    )
    if not (prompt.preamble and prompt.query and prompt.task and all(prompt.documents)):
        raise UserError(f"question {question!r}: a segment of its prompt has no tokens")
    return prompt


def _halves(context: int, before: int, after: int) -> tuple[int, int]:
    """Document tokens to keep at the beginning and at the end, so that the whole prompt is cut in its middle."""
    budget = context - SLACK
    head, tail = budget // 2 - before, budget - budget // 2 - after
    if head + tail < 1:
        raise UserError(f"the question alone takes {before + after} of the prompt's {context} tokens")
    if min(head, tail) < 0:
        return max(0, head + min(0, tail)), max(0, tail + min(0, head))
    return head, tail
