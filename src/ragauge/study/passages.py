"""The passages of a study's documents, cut at the ends of sentences, near-duplicates marked."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ragauge.assets.control_tokens import plain_reader
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.methods.evidence import sentences
from ragauge.pipelines.database.near_duplicates import originals
from ragauge.study.documents import SourceDocuments

Span = tuple[int, int]  # the first, and the one after the last


@dataclass(frozen=True)
class Passage:
    document: str  # title of its document
    text: str
    near_duplicate: bool = False  # of an earlier passage of the corpus
    # titles of the documents whose near-duplicates of it were dropped
    stands_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassageCorpus:
    """The passages that retrieval searches. Near-duplicates are marked as those of a chunk database
    are: 0.8 of their word 13-grams are shared (MinHash).
    """

    passages: tuple[Passage, ...]
    counts: Mapping[str, int]  # documents and passages, and how many of them repeat an earlier one
    # title or path of every document -> title of the one that it repeats, else its own
    originals: Mapping[str, str]

    def __str__(self) -> str:
        counts = self.counts
        treated = "left out of the search" if counts["dropped_passages"] else "marked"
        documents = counts["near_duplicate_documents"]
        repeated = counts["near_duplicate_passages"]
        text = (
            f"{counts['documents']:,} documents, {counts['passages']:,} passages; "
            f"{documents:,} duplicate documents, {repeated:,} duplicate passages"
        )
        return f"{text} ({treated})" if documents or repeated else text


def build(
    sources: SourceDocuments, tokenizer: Any, tokens: int, overlap: int, *, drop: bool = False
) -> PassageCorpus:
    """Cut the documents into passages of so many tokens, of which neighbours share `overlap`; mark
    near-duplicates. With `drop`, near-duplicates of an earlier passage are left out of the search.

    Raises:
        UserError: no document has a sentence.
    """
    documents = sources.documents
    every = [
        passage
        for document in bar("cutting documents", "document", iterable=documents, delay=2)
        for passage in cut(document.title, document.text, tokenizer, tokens, overlap)
    ]
    if not every:
        raise UserError("--documents: no document holds a sentence")
    first = originals([passage.text for passage in every])
    titles_of = defaultdict(list)
    for i, passage in enumerate(every):
        if drop and first[i] != i:
            titles_of[int(first[i])].append(passage.document)
    marked = [
        replace(passage, near_duplicate=bool(first[i] != i), stands_for=tuple(titles_of[i]))
        for i, passage in enumerate(every)
    ]
    searched = [passage for passage in marked if not (drop and passage.near_duplicate)]
    earliest = originals([document.text for document in documents])
    counts = {
        "documents": len(documents),
        "near_duplicate_documents": int((earliest != range(len(earliest))).sum()),
        "passages": len(marked),
        "near_duplicate_passages": sum(passage.near_duplicate for passage in marked),
        "dropped_passages": len(marked) - len(searched),
    }
    titles = {
        document.title: documents[first].title
        for document, first in zip(documents, earliest, strict=True)
    }
    names = {name: titles[title] for name, title in sources.names.items() if name not in titles}
    return PassageCorpus(tuple(searched), counts, titles | names)


def cut(title: str, text: str, tokenizer: Any, tokens: int, overlap: int) -> Iterator[Passage]:
    """Cut passages of at most `tokens` tokens; each repeats the last sentences, up to `overlap`
    tokens, of the former. A sentence longer than a passage, such as a table without full stops, is
    cut between its words.
    """
    spans = []
    whole = sentences.split(text)
    for (start, stop), offsets in zip(whole, _offsets(text, whole, tokenizer), strict=True):
        cuts = [start, *(start + at for at in _cuts(text[start:stop], offsets, tokens)), stop]
        spans += [(a, b) for a, b in pairwise(cuts) if a < b]
    for first, last in groups(list(map(len, _offsets(text, spans, tokenizer))), tokens, overlap):
        yield Passage(title, text[spans[first][0] : spans[last - 1][1]].strip())


def _cuts(sentence: str, offsets: Sequence[Span], tokens: int) -> Iterator[int]:
    """Where a sentence is cut so that no piece has more tokens. Before a table's row, else before a
    word, if one begins in a piece's second half. `offsets` (token, 2): first character of each
    token, and that after its last.
    """
    first = 0
    while len(offsets) - first > tokens:
        ends = range(first + tokens, first + tokens // 2, -1)
        around = {i: sentence[offsets[i][0] - 1 : offsets[i][0] + 1] for i in ends}
        words = [i for i in ends if any(map(str.isspace, around[i]))]
        rows = (i for i in words if "\n" in around[i])
        first = next(rows, words[0] if words else ends[0])
        yield offsets[first][0]


def _offsets(text: str, spans: Sequence[Span], tokenizer: Any) -> list[list[Span]]:
    """First and last character of every token of each part of a text; the tokenizer accepts no
    empty list.
    """
    options = {"add_special_tokens": False, "verbose": False, "return_offsets_mapping": True}
    reads = plain_reader(tokenizer, [text])
    return reads([text[a:b] for a, b in spans], **options)["offset_mapping"] if spans else []


def groups(counts: Sequence[int], tokens: int, overlap: int) -> Iterator[Span]:
    """Group sentences of these token counts into half-open runs of at most `tokens`, `overlap` of
    them shared.
    """
    first = 0
    while first < len(counts):
        last = first + 1
        total = counts[first]
        while last < len(counts) and total + counts[last] <= tokens:
            total += counts[last]
            last += 1
        yield first, last
        if last == len(counts):
            return
        following = last
        shared = 0
        while following - 1 > first and shared + counts[following - 1] <= overlap:
            following -= 1
            shared += counts[following]
        first = following if shared + counts[last] <= tokens else last
