"""A prompt: one question's segments as token ids, before any method has arranged them, and the
documents in it.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from ragauge.assets.catalog import Tokenization
from ragauge.assets.control_tokens import TemplateText, count_quoted, plain_reader
from ragauge.errors import UserError
from ragauge.methods.prompts.templates import (
    CONTEXT,
    INPUT,
    LINE_END,
    after_turn,
    cut_ids,
    document_text,
    ids_within,
    query_text,
    token_ids,
    wrapper,
)

LOOK_AHEAD = 16  # characters after a piece that its tokens may depend on; "[Document](Title"
SLACK = 4  # tokens by which stretches tokenised separately may exceed their share of the whole text


@dataclass(frozen=True)
class Source:
    """A document or a stretch of one."""

    document: int  # index among the question's documents
    title: str  # empty if it has none, and for a stretch from inside
    text: str
    offset: int = 0  # place of the text's first character in the document

    @property
    def shown(self) -> str:
        """The text below its title."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True)
class PromptText:
    """The words of a prompt, for methods that read it as one text."""

    template: str
    tokenization: Tokenization
    opening: TemplateText  # before the user's turn
    preamble: TemplateText  # the opening and the instruction
    documents: tuple[str, ...]  # each with what follows it
    query: str
    task: TemplateText

    def ids(self, tokenizer: Any, before: TemplateText, documents: Iterable[str]) -> list[int]:
        """Token ids of `before`, these documents, query and task as one text."""
        turn = [TemplateText(before.removeprefix(self.opening)), *documents, self.query]
        return token_ids(
            tokenizer, [self.opening, *turn, *after_turn(self.task, turn)], self.template
        )

    @property
    def task_pieces(self) -> list[str]:
        """The task of the prompt with all of its documents, which repeats them where the template
        does.
        """
        return after_turn(
            self.task,
            [TemplateText(self.preamble.removeprefix(self.opening)), *self.documents, self.query],
        )


@dataclass(frozen=True)
class Prompt:
    """The segments of a prompt, each with the same tokens in every prompt, so that a cached one
    serves all.
    """

    opening: list[int]  # the template's words before the user's turn
    preamble: list[int]  # the opening and the data set's instruction
    documents: list[list[int]]
    query: list[int]
    task: list[int]  # what follows the query and asks for the answer
    question: str = ""
    document_texts: tuple[str, ...] = ()  # as the prompt shows them, for rankers
    gold: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()  # the complete documents
    # what of the gold documents holds the answer, where the data set says so
    gold_sources: tuple[Source, ...] = ()
    # what the prompt shows of documents that lost their middle; empty: all of them
    cut: tuple[Source, ...] = ()
    document_end: str = "\n"  # what the prompt has after every document
    truncated: int = 0  # tokens left out of the documents' middle
    text: PromptText | None = None  # None: of tokens without words
    # whether the segments' tokens, joined, are those of the whole text
    exact_tokens: bool | None = None
    control_tokens: int = 0  # that documents and question quote, as words

    @property
    def ending(self) -> list[int]:
        """Token ids of everything after the documents: the query and the task."""
        return [*self.query, *self.task]

    def plain(self, documents: Iterable[Sequence[int]]) -> list[int]:
        """Token ids of the whole prompt with these documents in place of its own."""
        return [*self.preamble, *(token for ids in documents for token in ids), *self.ending]

    def as_one(self, tokenizer: Any, documents: Iterable[Sequence[int] | str] = ()) -> list[int]:
        """Token ids of the prompt with these documents, its own or texts, as one text; without any,
        no instruction. Segments' ids are joined where the tokenization is `segments` or the text of
        a document is not known.
        """
        chosen = list(documents)
        words = self.text
        if words and tokenizer is not None and words.tokenization == "whole":
            own = dict(zip(map(tuple, self.documents), words.documents, strict=True))
            texts = [one if isinstance(one, str) else own.get(tuple(one)) for one in chosen]
            if None not in texts:
                return words.ids(
                    tokenizer, words.preamble if texts else words.opening, filter(None, texts)
                )
        ids = [token_ids(tokenizer, one) if isinstance(one, str) else one for one in chosen]
        return self.plain(ids) if ids else [*self.opening, *self.ending]

    def read_by(self, tokenizer: Any) -> Self:
        """Return the prompt in another tokenizer's tokens, opened by its own chat template if that
        is the template.
        """
        assert self.text is not None
        template = self.text.template
        instruction = self.text.preamble.removeprefix(self.text.opening)
        # which a model that only continues texts lacks
        has_opening = template != "chat" or tokenizer.chat_template
        opening = wrapper(template, tokenizer, repeats=True)[0] if has_opening else TemplateText()
        text = replace(self.text, opening=opening, preamble=TemplateText(opening + instruction))
        preamble, documents, query, task = _segments(text, tokenizer)
        return replace(
            self, preamble=preamble, documents=documents, query=query, task=task, text=text
        )

    @property
    def sha256(self) -> str:
        segments = [self.preamble, self.documents, self.query, self.task]
        return hashlib.sha256(json.dumps(segments).encode()).hexdigest()

    def token_counts(self) -> dict[str, Any]:
        return {
            "preamble": len(self.preamble),
            "documents": [len(d) for d in self.documents],
            "query": len(self.query),
            "task": len(self.task),
        }

    @property
    def total_tokens(self) -> int:
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
    tokenization: Tokenization = "segments",
    blank_line: bool = False,
) -> Prompt:
    """The prompt of a question over (title, text) documents, under a data set's instruction and a
    model's template.

    Args:
        instruction: what stands before the documents; or a whole prompt in LongBench's form, with
            `{context}` where they go and `{input}` where the question goes.
        context: tokens that a prompt in LongBench's form may have; the documents' middle is cut out
            beyond it.
        tokenization: `whole` cuts segments out of the tokens of the whole text, as far as they are
            the same in every prompt; `segments` tokenises each by itself, without the blank that
            SentencePiece puts before a text.
        blank_line: before the question, in a prompt that is not in LongBench's form.

    Raises UserError for a segment without tokens, an unknown template, no room for any document in
    `context`.
    """
    opening, task = wrapper(template, tokenizer, repeats=True)
    sources = tuple(Source(i, title, text) for i, (title, text) in enumerate(documents))
    is_official = CONTEXT in instruction
    before, _, after = instruction.partition(CONTEXT)
    after = after.replace(INPUT, question)
    if not is_official:
        before = f"{before}\n\n"
        after = "\n" * blank_line + query_text(question)
    elif after.endswith(
        task.strip()
    ):  # the prompt asks for the answer in the template's words itself
        stem = after.removesuffix(task.strip()).rstrip()
        after, task = stem, TemplateText(after[len(stem) :])  # with the white space between them
    ids = partial(token_ids, tokenizer)
    start = TemplateText(f"{opening}{before}")
    preamble = ids(start, template)
    query = ids(after)
    task_ids = ids(task)
    shown = sources
    truncated = 0
    if is_official and context is not None:
        room = _halves(context, len(preamble), len(query) + len(task_ids))
        shown, truncated = cut_middle(sources, tokenizer, *room)
    texts = tuple(s.shown if is_official else document_text(s.title, s.text) for s in sources)
    end = "" if is_official else LINE_END
    parts = (
        [[s.shown for s in shown if s.document == i] for i in range(len(sources))]
        if truncated
        else ()
    )
    whole = tuple(map("".join, parts)) or tuple(text + end for text in texts)
    words = PromptText(template, tokenization, opening, start, whole, after, task)
    preamble, document_ids, query, task_ids = _segments(words, tokenizer, parts)
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
        text=words,
        exact_tokens=[*preamble, *(t for d in document_ids for t in d), *query, *task_ids]
        == words.ids(tokenizer, words.preamble, whole),
        control_tokens=count_quoted(tokenizer, [*whole, after]),
    )
    if not (prompt.preamble and prompt.query and prompt.task and all(prompt.documents)):
        raise UserError(f"question {question!r}: a segment of its prompt has no tokens")
    return prompt


def _segments(
    words: PromptText, tokenizer: Any, parts: Sequence[Sequence[str]] = ()
) -> tuple[list[int], list[list[int]], list[int], list[int]]:
    """Token ids of preamble, documents, query and task; `parts`: what is left of documents that
    lost their middle.
    """
    if words.tokenization == "whole" and tokenizer.is_fast:
        return _cut(words, tokenizer)
    ids = partial(token_ids, tokenizer)
    documents = [
        [t for part in pieces for t in ids(part)]
        for pieces in parts or [[text] for text in words.documents]
    ]
    return ids(words.preamble, words.template), documents, ids(words.query), ids(words.task_pieces)


def _cut(
    words: PromptText, tokenizer: Any
) -> tuple[list[int], list[list[int]], list[int], list[int]]:
    """The segments as they stand in a text of any such documents, a token over the task's edge with
    the query.
    """
    ahead = words.documents[0][:LOOK_AHEAD]
    preamble = ids_within(tokenizer, "", words.preamble, ahead, words.template)
    documents = [ids_within(tokenizer, LINE_END, text, ahead) for text in words.documents]
    (_, over), (query, _), *task = cut_ids(tokenizer, (LINE_END, words.query, *words.task_pieces))
    if over:
        (query, _), *task = cut_ids(tokenizer, (words.query, *words.task_pieces))
    return preamble, documents, query, [token for ids, _ in task for token in ids]


def _halves(context: int, before: int, after: int) -> tuple[int, int]:
    """Document tokens to keep at the beginning and at the end, so that the whole prompt is cut in
    its middle.
    """
    budget = context - SLACK
    head = budget // 2 - before
    tail = budget - budget // 2 - after
    if head + tail < 1:
        raise UserError(
            f"the question alone takes {before + after} of the prompt's {context} tokens"
        )
    return max(0, head + min(0, tail)), max(0, tail + min(0, head))


def cut_middle(
    sources: Sequence[Source], tokenizer: Any, head: int, tail: int
) -> tuple[tuple[Source, ...], int]:
    """The first `head` and the last `tail` tokens of the sources, and how many tokens between them
    are left out. LongBench's middle truncation. Both cuts are at characters, so a stretch is found
    again in its document; read by itself it may come to a token or two more.
    """
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    reads = plain_reader(tokenizer, [source.shown for source in sources])
    offsets = [list(reads(source.shown, **options)["offset_mapping"]) for source in sources]
    total = sum(map(len, offsets))
    if total <= head + tail:
        return tuple(sources), 0
    shown: list[Source] = []
    at = 0
    for source, tokens in zip(sources, offsets, strict=True):
        first = max(0, head - at)
        last = max(0, at + len(tokens) - (total - tail))
        at += len(tokens)
        shown += [source] if first + last >= len(tokens) else _ends(source, tokens, first, last)
    return tuple(shown), total - head - tail


def _ends(source: Source, tokens: Sequence[tuple[int, int]], first: int, last: int) -> list[Source]:
    header = len(source.shown) - len(source.text)
    stop = max(0, tokens[first - 1][1] - header) if first else 0
    start = max(0, tokens[-last][0] - header) if last else len(source.text)
    stretches = [
        Source(source.document, source.title, source.text[:stop], source.offset),
        Source(source.document, "", source.text[start:], source.offset + start),
    ]
    return [stretch for stretch in stretches if stretch.text.strip()]
