"""Documents as they are read, whole or with their middle cut out, each character's place in them known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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


def cut_middle(sources: Sequence[Source], tokenizer: Any, head: int, tail: int) -> tuple[tuple[Source, ...], int]:
    """The first `head` and the last `tail` tokens of the sources, and how many tokens between them are left out.

    LongBench's middle truncation. Both cuts are at characters, so a stretch is found again in its document; read by
    itself it may come to a token or two more.
    """
    offsets = [_offsets(source, tokenizer) for source in sources]
    total = sum(map(len, offsets))
    if total <= head + tail:
        return tuple(sources), 0
    shown: list[Source] = []
    at = 0
    for source, tokens in zip(sources, offsets, strict=True):
        first, last = max(0, head - at), max(0, at + len(tokens) - (total - tail))
        at += len(tokens)
        shown += [source] if first + last >= len(tokens) else _ends(source, tokens, first, last)
    return tuple(shown), total - head - tail


def _offsets(source: Source, tokenizer: Any) -> list[tuple[int, int]]:
    read = tokenizer(source.shown, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return list(read["offset_mapping"])


def _ends(source: Source, tokens: Sequence[tuple[int, int]], first: int, last: int) -> list[Source]:
    """The stretches of a source's first and last tokens, without those that are blank."""
    header = len(source.shown) - len(source.text)
    stop = max(0, tokens[first - 1][1] - header) if first else 0
    start = max(0, tokens[-last][0] - header) if last else len(source.text)
    stretches = [
        Source(source.document, source.title, source.text[:stop], source.offset),
        Source(source.document, "", source.text[start:], source.offset + start),
    ]
    return [stretch for stretch in stretches if stretch.text.strip()]
