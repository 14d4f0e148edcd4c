"""Passages of the documents in a folder, cut at the ends of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.evidence import sentences
from ragauge.io.jsonl import field, read_jsonl

TEXTS = (".md", ".txt")
RECORDS = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Passage:
    """A stretch of a document."""

    document: str  # title of its document
    text: str


def read_documents(folder: Path) -> Iterator[tuple[str, str]]:
    """Title and text of every document in a folder, at any depth, in the order of the files' names.

    A Markdown or text file is a document named by its path in the folder; a line of a JSONL file, plain or gzipped, is
    one with the fields `title` and `text`.

    Raises:
        UserError: no such folder, no file of these kinds in it, a file that is not text.
    """
    if not folder.is_dir():
        raise UserError(f"--documents: {folder} is not a folder")
    files = [path for path in sorted(folder.rglob("*")) if path.name.endswith((*TEXTS, *RECORDS))]
    if not files:
        raise UserError(f"--documents: {folder} holds no file that ends with {', '.join((*TEXTS, *RECORDS))}")
    for path in files:
        yield from _documents(path, folder)


def _documents(path: Path, folder: Path) -> Iterator[tuple[str, str]]:
    if path.name.endswith(RECORDS):
        for number, record in read_jsonl(path):
            place = f"{path}:{number}"
            yield field(record, "title", str, place), field(record, "text", str, place)
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text: {error}") from None
    if text.strip():
        yield str(path.relative_to(folder).with_suffix("")), text


def cut(title: str, text: str, tokenizer: Any, tokens: int, overlap: int) -> Iterator[Passage]:
    """Passages of at most `tokens` tokens; each begins with the last sentences, up to `overlap` tokens, of the former.

    A sentence longer than a passage is a passage of its own, uncut.
    """
    spans = sentences.split(text)
    counts = [len(tokenizer(text[a:b], add_special_tokens=False, verbose=False)["input_ids"]) for a, b in spans]
    for first, last in groups(counts, tokens, overlap):
        yield Passage(title, text[spans[first][0] : spans[last - 1][1]].strip())


def groups(counts: Sequence[int], tokens: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Half-open runs of sentences of these token counts: within `tokens`, `overlap` of them shared with the former."""
    first = 0
    while first < len(counts):
        last, total = first + 1, counts[first]
        while last < len(counts) and total + counts[last] <= tokens:
            total += counts[last]
            last += 1
        yield first, last
        if last == len(counts):
            return
        following, shared = last, 0
        while following - 1 > first and shared + counts[following - 1] <= overlap:
            following -= 1
            shared += counts[following]
        first = following if shared + counts[last] <= tokens else last
