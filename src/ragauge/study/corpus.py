"""The corpus of a study: the passages of its documents, near-duplicates marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.retrieval.near_duplicates import originals
from ragauge.study import passages
from ragauge.study.documents import SourceDocuments
from ragauge.study.passages import Passage


@dataclass(frozen=True)
class PassageCorpus:
    """The passages that retrieval searches.

    Near-duplicates are marked as those of a chunk database are: 0.8 of their word 13-grams are shared (MinHash).
    """

    passages: tuple[Passage, ...]
    counts: Mapping[str, int]  # documents and passages, and how many of them repeat an earlier one
    originals: Mapping[str, str]  # title of every document -> of the one that it repeats, else its own

    def __str__(self) -> str:
        counts, treated = self.counts, "left out of the search" if self.counts["dropped_passages"] else "marked"
        size = f"{counts['documents']:,} documents, {counts['passages']:,} passages"
        documents, repeated = counts["near_duplicate_documents"], counts["near_duplicate_passages"]
        text = f"{size}; {documents:,} duplicate documents, {repeated:,} duplicate passages"
        return f"{text} ({treated})" if documents or repeated else text


def build(sources: SourceDocuments, tokenizer: Any, tokens: int, overlap: int, *, drop: bool = False) -> PassageCorpus:
    """Cut the documents into passages and mark near-duplicates.

    Args:
        tokens, overlap: of a passage, and shared by neighbours.
        drop: leave passages that are near-duplicates of an earlier one out of the search.

    Raises:
        UserError: no document has a sentence.
    """
    documents = sources.documents
    cut = [
        passage
        for document in bar("cutting documents", "document", iterable=documents, delay=2)
        for passage in passages.cut(document.title, document.text, tokenizer, tokens, overlap)
    ]
    if not cut:
        raise UserError("--documents: no document holds a sentence")
    first = originals([passage.text for passage in cut])
    marked = [replace(passage, near_duplicate=bool(first[i] != i)) for i, passage in enumerate(cut)]
    searched = [passage for passage in marked if not (drop and passage.near_duplicate)]
    earliest = originals([document.text for document in documents])
    counts = {
        "documents": len(documents),
        "near_duplicate_documents": int((earliest != range(len(earliest))).sum()),
        "passages": len(marked),
        "near_duplicate_passages": sum(passage.near_duplicate for passage in marked),
        "dropped_passages": len(marked) - len(searched),
    }
    titles = {document.title: documents[first].title for document, first in zip(documents, earliest, strict=True)}
    return PassageCorpus(tuple(searched), counts, titles)
