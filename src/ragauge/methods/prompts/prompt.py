"""A prompt: one question's segments as token ids, before any method has arranged them, and the
documents in it.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import harmonic_mean
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
class PromptStyle:
    """The writing of prompts: a data set's instruction in a model's template.

    Args:
        instruction: the text before the documents; or a whole prompt in LongBench's form, with
            `{context}` in place of the documents and `{input}` in place of the question.
        tokenization: `whole` cuts segments out of the tokens of the whole text, as far as they are
            the same in every prompt; `segments` tokenises each by itself, without the blank that
            SentencePiece puts before a text.
        blank_line: before the question, in a prompt that is not in LongBench's form.
        context: tokens that a prompt in LongBench's form may have; the documents' middle is cut out
            beyond it.
    """

    instruction: str
    template: str
    tokenization: Tokenization = "segments"
    blank_line: bool = False
    context: int | None = None

    @property
    def is_official(self) -> bool:
        """Return whether the instruction is a whole prompt in LongBench's form."""
        return CONTEXT in self.instruction


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
        """Return the token ids of `before`, these documents, query and task as one text."""
        turn = self._turn(before, documents)
        return token_ids(
            tokenizer, [self.opening, *turn, *after_turn(self.task, turn)], self.template
        )

    @property
    def task_pieces(self) -> list[str]:
        """The task of the prompt with all of its documents, which repeats them where the template
        does.
        """
        return after_turn(self.task, self._turn(self.preamble, self.documents))

    def _turn(self, before: TemplateText, documents: Iterable[str]) -> list[str]:
        return [TemplateText(before.removeprefix(self.opening)), *documents, self.query]


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
    # see `corpus_spacing`; None: the corpus is not known, or no method depends on it
    corpus_spacing: float | None = None

    @property
    def ending(self) -> list[int]:
        """Return the token ids of everything after the documents: the query and the task."""
        return [*self.query, *self.task]

    def plain(self, documents: Iterable[Sequence[int]]) -> list[int]:
        """Return the token ids of the whole prompt with these documents in place of its own."""
        return [*self.preamble, *(token for ids in documents for token in ids), *self.ending]

    def as_one(self, tokenizer: Any, documents: Iterable[Sequence[int] | str] = ()) -> list[int]:
        """Return the token ids of the prompt with these documents, its own or texts, as one text; without any,
        no instruction. Segments' ids are joined where the tokenization is `segments` or the text of
        a document is not known.
        """
        chosen = list(documents)
        words = self.text
        if words and tokenizer is not None and words.tokenization == "whole":
            own = dict(zip(map(tuple, self.documents), words.documents, strict=True))
            texts = [d if isinstance(d, str) else own.get(tuple(d)) for d in chosen]
            if None not in texts:
                before = words.preamble if texts else words.opening
                return words.ids(tokenizer, before, filter(None, texts))
        ids = [token_ids(tokenizer, d) if isinstance(d, str) else d for d in chosen]
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
        return replace(self, text=text, **_segments(text, tokenizer))

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
        return len(self.plain(self.documents))


def corpus_spacing(prompts: Iterable[Prompt]) -> float:
    """Return S of equilibrium positions over a corpus: the harmonic mean of the lengths, in tokens,
    of all documents of its prompts, each counted once.
    """
    # by hash: the tokens of a corpus need not fit in memory twice
    lengths = {hash(tuple(ids)): len(ids) for prompt in prompts for ids in prompt.documents}
    return harmonic_mean(list(lengths.values()))


def build_prompt(
    question: str,
    documents: Sequence[tuple[str, str]],
    style: PromptStyle,
    tokenizer: Any,
    *,
    gold: Sequence[int] = (),
    gold_sources: Sequence[Source] = (),
) -> Prompt:
    """Build the prompt of a question over (title, text) documents.

    Args:
        gold: the indices of the documents that hold the answer.
        gold_sources: the stretches of them that hold it, where the data set says so.

    Raises:
        UserError: a segment without tokens, an unknown template, no room for any document in
            the style's context.
    """
    sources = tuple(Source(i, title, text) for i, (title, text) in enumerate(documents))
    opening, start, query, task = _frame(question, style, tokenizer)
    shown = sources
    truncated = 0
    if style.is_official:
        texts = [source.shown for source in sources]
        end = ""
        if style.context is not None:
            before = len(token_ids(tokenizer, start, style.template))
            after = len(token_ids(tokenizer, query)) + len(token_ids(tokenizer, task))
            shown, truncated = cut_middle(
                sources, tokenizer, *_halves(style.context, before, after)
            )
    else:
        texts = [document_text(source.title, source.text) for source in sources]
        end = LINE_END
    parts = [[text + end] for text in texts]
    if truncated:
        parts = [[s.shown for s in shown if s.document == i] for i in range(len(sources))]
    words = PromptText(
        style.template,
        style.tokenization,
        opening,
        start,
        tuple(map("".join, parts)),
        query,
        task,
    )
    prompt = Prompt(
        opening=token_ids(tokenizer, opening, style.template),
        **_segments(words, tokenizer, parts),
        question=question,
        document_texts=tuple(texts),
        gold=tuple(gold),
        sources=sources,
        gold_sources=tuple(gold_sources),
        cut=shown if truncated else (),
        document_end=end,
        truncated=truncated,
        text=words,
        control_tokens=count_quoted(tokenizer, [*words.documents, query]),
    )
    if not (prompt.preamble and prompt.query and prompt.task and all(prompt.documents)):
        raise UserError(f"question {question!r}: a segment of its prompt has no tokens")
    whole = words.ids(tokenizer, words.preamble, words.documents)
    return replace(prompt, exact_tokens=prompt.plain(prompt.documents) == whole)


def _frame(
    question: str, style: PromptStyle, tokenizer: Any
) -> tuple[TemplateText, TemplateText, str, TemplateText]:
    """Write everything around the documents: (opening, opening with instruction, query, task)."""
    opening, task = wrapper(style.template, tokenizer, repeats=True)
    before, _, after = style.instruction.partition(CONTEXT)
    if not style.is_official:
        query = "\n" * style.blank_line + query_text(question)
        return opening, TemplateText(f"{opening}{before}\n\n"), query, task
    query = after.replace(INPUT, question)
    words = task.strip()
    if query.endswith(words):  # the prompt asks for the answer in the template's words itself
        stem = query.removesuffix(words).rstrip()
        task = TemplateText(query[len(stem) :])  # with the white space between them
        query = stem
    return opening, TemplateText(opening + before), query, task


def _segments(
    words: PromptText, tokenizer: Any, parts: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """Tokenise the segments, the fields of a `Prompt`; `parts`: the remaining stretches of each
    document.
    """
    if words.tokenization == "whole" and tokenizer.is_fast:
        return _cut(words, tokenizer)
    ids = partial(token_ids, tokenizer)
    documents = [
        [token for piece in pieces for token in ids(piece)]
        for pieces in parts or [[text] for text in words.documents]
    ]
    return {
        "preamble": ids(words.preamble, words.template),
        "documents": documents,
        "query": ids(words.query),
        "task": ids(words.task_pieces),
    }


def _cut(words: PromptText, tokenizer: Any) -> dict[str, Any]:
    """Cut the segments out of a text of any such documents; a token over the task's edge goes with
    the query.
    """
    look_ahead = words.documents[0][:LOOK_AHEAD]
    preamble = ids_within(tokenizer, "", words.preamble, look_ahead, words.template)
    documents = [ids_within(tokenizer, LINE_END, text, look_ahead) for text in words.documents]
    (_, over), (query, _), *task = cut_ids(tokenizer, (LINE_END, words.query, *words.task_pieces))
    if over:
        (query, _), *task = cut_ids(tokenizer, (words.query, *words.task_pieces))
    task_ids = [token for ids, _ in task for token in ids]
    return {"preamble": preamble, "documents": documents, "query": query, "task": task_ids}


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
    """Return the first `head` and the last `tail` tokens of the sources, and how many tokens
    between them are left out. LongBench's middle truncation. Both cuts are at characters, so a
    stretch is found again in its document; read by itself it may come to a token or two more.
    """
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    reads = plain_reader(tokenizer, [source.shown for source in sources])
    offsets = [list(reads(source.shown, **options)["offset_mapping"]) for source in sources]
    total = sum(map(len, offsets))
    if total <= head + tail:
        return tuple(sources), 0
    shown = []
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
