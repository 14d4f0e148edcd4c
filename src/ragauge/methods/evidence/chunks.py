"""Chunks of a text for CFIC's baselines: runs of whole sentences."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ragauge.methods.evidence.sentences import Sentence
from ragauge.methods.evidence.skip import Range
from ragauge.methods.prompts import Source

# what ends a paragraph
BREAKS = {"newline": re.compile(r"\n"), "blank_line": re.compile(r"\n[^\S\n]*\n")}


def sliding_windows(
    sources: Sequence[Source], sentences: Sequence[Sentence], words: int
) -> list[Range]:
    """From every sentence on, as many sentences of its document as have at most `words` words
    together; a longer sentence is a window of its own. Windows that end where the previous one
    ended are left out.
    """
    counts = word_counts(sources, sentences)
    windows = list[Range]()
    for first in range(len(sentences)):
        last = first
        total = counts[first]
        while last + 1 < len(sentences) and sentences[last + 1].source == sentences[first].source:
            total += counts[last + 1]
            if total > words:
                break
            last += 1
        if not windows or last > windows[-1][1]:
            windows.append((first, last))
    return windows


def paragraphs(
    sources: Sequence[Source], sentences: Sequence[Sentence], words: int, mark: str = "newline"
) -> list[Range]:
    """Return the documents' own paragraphs, between breaks of `BREAKS[mark]`, or newlines if it has
    none; one of more than `words` words is cut at sentence ends into pieces of that size. A
    sentence belongs to the paragraph it begins in.
    """
    counts = word_counts(sources, sentences)
    breaks = []  # where each source's paragraphs end
    for source in sources:
        text = source.text
        begin = len(text) - len(text.lstrip())
        ends = (
            [m.end() for m in BREAKS[name].finditer(text.rstrip(), begin)]
            for name in (mark, "newline")
        )
        breaks.append(next(ends) or next(ends))
    pieces: list[Range] = []
    current = (-1, -1)
    total = 0
    for index, sentence in enumerate(sentences):
        paragraph = (sentence.source, bisect_right(breaks[sentence.source], sentence.start))
        total += counts[index]
        if paragraph == current and total <= words:
            pieces[-1] = (pieces[-1][0], index)
        else:
            pieces.append((index, index))
            current = paragraph
            total = counts[index]
    return pieces


def within(ranked: Iterable[Range], sentences: Sequence[Sentence], volume: int) -> list[Range]:
    """Return the sentences of the ranked chunks, best first, until `volume` tokens are reached; one
    that several hold counts once. Of the first chunk that does not fit the first sentences are
    taken; the very first sentence however long it is.
    """
    taken: list[int] = []
    for index in dict.fromkeys(i for first, last in ranked for i in range(first, last + 1)):
        volume -= sentences[index].last - sentences[index].first
        if taken and volume < 0:
            break
        taken.append(index)
    return [(index, index) for index in taken]


def word_counts(sources: Sequence[Source], sentences: Sequence[Sentence]) -> list[int]:
    """Return words of each sentence: what white space separates."""
    return [len(sources[s.source].text[s.start : s.stop].split()) for s in sentences]


def text_of(chunk: Range, sources: Sequence[Source], sentences: Sequence[Sentence]) -> str:
    """Return a chunk's text, without white space at its ends."""
    first = sentences[chunk[0]]
    last = sentences[chunk[1]]
    return sources[first.source].text[first.start : last.stop].strip()
