"""The corpus of a study: the passages of its documents, and which of them repeat others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.retrieval.near_duplicates import originals
from ragauge.study import passages
from ragauge.study.documents import Found
from ragauge.study.passages import Passage


@dataclass(frozen=True)
class PassageCorpus:
    """What retrieval searches.

    Near-duplicates are marked as those of a chunk database are: 0.8 of their word 13-grams are shared (MinHash).
    """

    passages: tuple[Passage, ...]
    counts: Mapping[str, int]  # documents and passages, and how many of them repeat an earlier one
    titles: Mapping[str, str]  # of every document -> of the one that it repeats, else its own


def build(found: Found, tokenizer: Any, tokens: int, overlap: int, *, drop: bool = False) -> PassageCorpus:
    """The passages of the documents, near-duplicates marked.

    Args:
        tokens, overlap: of a passage, and shared by neighbours.
        drop: leave passages that are near-duplicates of an earlier one out of what is searched.

    Raises:
        UserError: no document has a sentence.
    """
    cut = [
        passage
        for document in bar("cutting documents", "document", iterable=found.documents, delay=2)
        for passage in passages.cut(document.title, document.text, tokenizer, tokens, overlap)
    ]
    if not cut:
        raise UserError("--documents: no document holds a sentence")
    first = originals([passage.text for passage in cut])
    marked = [replace(p, near_duplicate=bool(first[i] != i)) for i, p in enumerate(cut)]
    kept = [p for p in marked if not (drop and p.near_duplicate)]
    earliest = originals([document.text for document in found.documents])
    counts = {
        "documents": len(found.documents),
        "near_duplicate_documents": int((earliest != range(len(earliest))).sum()),
        "passages": len(marked),
        "near_duplicate_passages": sum(p.near_duplicate for p in marked),
        "dropped_passages": len(marked) - len(kept),
    }
    pairs = zip(found.documents, earliest, strict=True)
    titles = {document.title: found.documents[first].title for document, first in pairs}
    return PassageCorpus(tuple(kept), counts, titles)


def described(corpus: PassageCorpus) -> str:
    """The corpus in a line."""
    counts = corpus.counts
    repeated = f"{counts['near_duplicate_documents']:,} and {counts['near_duplicate_passages']:,}"
    what = "left out of the search" if counts["dropped_passages"] else "marked"
    passages = f"{counts['documents']:,} documents, {counts['passages']:,} passages"
    return f"{passages}; near-duplicates among them: {repeated}" + (f" ({what})" if repeated != "0 and 0" else "")
