"""Building a chunk database: documents are cut shard by shard, near-duplicates are marked, and all shards gathered.

A shard is made by one job, whatever the others do, and so is each evaluation set, text of another corpus; then `mark`,
again one job per shard, looks its documents up among the evaluation text of all shards and sets, and `gather` names the
shards and the near-duplicates, which an index leaves out, in order. `database` describes the folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import text_sha256
from ragauge.io.progress import bar
from ragauge.retrieval.corpus import Corpus, as_json_line
from ragauge.retrieval.database import (
    DATABASE,
    EVALUATION,
    MARKED,
    SHARD,
    EvaluationSet,
    Shard,
    encode,
    evaluation_folder,
    load_tokenizer,
    marked_folder,
    shard_folder,
    tokenizer_sha256,
)
from ragauge.retrieval.documents import CorpusDocument, Share
from ragauge.retrieval.near_duplicates import EvaluationText, signatures

BATCH_DOCUMENTS = 64  # tokenised together,
BATCH_CHARACTERS = 1 << 22  # or fewer, where they are long


@dataclass(frozen=True)
class Split:
    """Which part of each document is evaluation text, and which goes into the database."""

    # the last share of each document, a share of the documents, nothing, everything
    kind: Literal["tail", "documents", "none", "all"] = "tail"
    share: float = 0.2

    def __call__(self, document: CorpusDocument) -> tuple[str, str]:
        """The text for the database and the text for evaluation; either may be empty."""
        if self.kind in ("documents", "all"):
            held_out = self.kind == "all" or _fraction(document.text) < self.share
            return ("", document.text) if held_out else (document.text, "")
        if self.kind == "none":
            return document.text, ""
        cut = _word_end(document.text, round(len(document.text) * (1 - self.share)))
        return document.text[:cut], document.text[cut:].strip()


@dataclass(frozen=True)
class DatabaseRecipe:
    """How a database is made from its corpus. Everything in it is part of the database's identity."""

    corpus: Corpus
    tokenizer: str  # a model or a folder, as `assets.resolve` takes it
    chunk_tokens: int = 64
    split: Split = Split()
    shards: int = 1


def build_shard(database: Path, recipe: DatabaseRecipe, number: int) -> bool:
    """Make one shard, unless it exists; returns whether it was made.

    Memory: the tokenizer, and at most `BATCH_CHARACTERS` of text and one document at a time.

    Raises:
        UserError: the corpus cannot be read (file and line are named), it gives the shard no chunk, or the disk is
            full.
    """
    share = Share(number, recipe.shards)
    tokenizer = load_tokenizer(recipe.tokenizer)
    made_from = {
        "corpus": recipe.corpus.identity(share),
        "tokenizer": tokenizer_sha256(tokenizer),
        "chunk_tokens": recipe.chunk_tokens,
        "split": asdict(recipe.split),
    }

    def make(folder: Path) -> dict[str, Any]:
        with _ShardWriter(folder, recipe, tokenizer) as writer:
            documents = recipe.corpus.documents(share)
            for document in bar(f"cutting shard {number}", "document", iterable=documents):
                writer.add(document)
        if not writer.chunks:
            sources = ", ".join(recipe.corpus.sources)
            raise UserError(f"corpus {sources}: shard {number} of {recipe.shards} gets no text; use fewer shards")
        return {"tokenizer_source": recipe.tokenizer, **writer.facts()}

    return folders.build(shard_folder(database, number), SHARD, made_from, make)


def build_evaluation_set(database: Path, label: str, corpus: Corpus, split: Split) -> bool:
    """Cut the text of an evaluation set, unless it exists; returns whether it was made.

    Memory: one document.

    Raises:
        UserError: the corpus cannot be read (file and line are named), or gives no text.
    """

    def make(folder: Path) -> dict[str, Any]:
        written = 0
        with open(folder / "evaluation.jsonl", "wb") as lines, open(folder / "evaluation_signatures.bin", "wb") as rows:
            for document in bar(f"cutting {label}", "document", iterable=corpus.documents(Share())):
                if text := split(document)[1]:
                    lines.write(_evaluation_line(-1, document, text))
                    rows.write(signatures([text]).tobytes())
                    written += 1
        if not written:
            raise UserError(f"corpus {', '.join(corpus.sources)}: gives the evaluation set {label!r} no text")
        return {"counts": {"evaluation": written}}

    made_from = {"corpus": corpus.identity(Share()), "split": asdict(split)}
    return folders.build(evaluation_folder(database, label), EVALUATION, made_from, make)


def mark(database: Path, shards: int, number: int, sets: Sequence[str] = ()) -> bool:
    """Compare the documents of one shard with the evaluation text of all; returns whether there was anything to do.

    Memory: the signatures of the held-out text, or of one evaluation set, and one shard's.

    Args:
        sets: labels of the evaluation sets whose near-duplicates are marked as well.

    Raises:
        UserError: a shard is missing, truncated, or of another corpus, tokenizer or chunk size than the first; an
            evaluation set was not cut.
    """
    parts, others = _shards(database, shards), _evaluation_sets(database, sets)

    def make(folder: Path) -> dict[str, Any]:
        shard = parts[number]
        like = {"": _like(shard, (part.evaluation_signatures for part in parts))}
        like |= {label: _like(shard, [one.evaluation_signatures]) for label, one in others.items()}
        found = np.flatnonzero(np.any(list(like.values()), axis=0))
        found.astype(np.int64).tofile(folder / "documents.bin")
        chunks = np.bincount(shard.chunk_documents, minlength=shard.documents)[found].sum()
        counts = {"near_duplicate_documents": len(found), "near_duplicate_chunks": int(chunks)}
        return {"counts": counts | {f"near_duplicate_documents_of_{label}": int(like[label].sum()) for label in others}}

    return folders.build(marked_folder(database, number), MARKED, _marked_from(parts, others, number), make)


def _like(shard: Shard, evaluation: Iterable[np.ndarray]) -> np.ndarray:
    """Which documents of a shard are near-duplicates of evaluation text, given as its signatures: (document,) bool."""
    return EvaluationText(evaluation).near_duplicates(shard.document_signatures)


def gather(database: Path, shards: int, sets: Sequence[str] = ()) -> bool:
    """List the shards and their near-duplicates of evaluation text in order; returns whether there was anything to do.

    Memory: the numbers of the near-duplicates.

    Args:
        sets: labels of the evaluation sets that they were marked against.

    Raises:
        UserError: a shard is missing, truncated, or of another corpus, tokenizer or chunk size than the first, or its
            near-duplicates were marked against other shards or evaluation sets.
    """
    parts, others = _shards(database, shards), _evaluation_sets(database, sets)
    marked = [_marked(database, parts, others, number) for number in range(shards)]

    def make(folder: Path) -> dict[str, Any]:
        starts = np.cumsum([0, *(part.documents for part in parts)])
        with open(folder / "near_duplicates.bin", "wb") as file:
            for number, start in enumerate(starts[:-1]):
                found = np.fromfile(marked_folder(database, number) / "documents.bin", dtype=np.int64)
                file.write((start + found).tobytes())
        return {
            "counts": _totals([part.manifest for part in parts]) | _totals(marked),
            "tokenizer": parts[0].manifest["made_from"]["tokenizer"],
            "tokenizer_source": parts[0].manifest["tokenizer_source"],
            "chunk_tokens": parts[0].chunk_tokens,
            "corpus": text_sha256([part.manifest["made_from"]["corpus"] for part in parts]),
        }

    return folders.build(database / "database", DATABASE, _gathered_from(parts, others), make)


def _shards(database: Path, count: int) -> list[Shard]:
    """All shards, which must be parts of one database."""
    parts = [Shard.open(shard_folder(database, number)) for number in range(count)]
    for part in parts[1:]:
        part.check_like(parts[0])
    return parts


def _evaluation_sets(database: Path, labels: Sequence[str]) -> dict[str, EvaluationSet]:
    """Evaluation sets by their labels."""
    return {label: EvaluationSet.open(database, label) for label in sorted(labels)}


def _gathered_from(parts: Sequence[Shard], sets: Mapping[str, EvaluationSet]) -> dict[str, Any]:
    """What a database is made from: its shards and, if it has any, its evaluation sets."""
    shards = {"shards": [part.sha256 for part in parts]}
    return {**shards, "evaluation_sets": {label: one.sha256 for label, one in sets.items()}} if sets else shards


def _marked_from(parts: Sequence[Shard], sets: Mapping[str, EvaluationSet], number: int) -> dict[str, Any]:
    """What a shard's near-duplicates depend on: its documents, and the evaluation text of all shards and sets."""
    return {"shard": parts[number].sha256, **_gathered_from(parts, sets)}


def _marked(database: Path, parts: Sequence[Shard], sets: Mapping[str, EvaluationSet], number: int) -> dict[str, Any]:
    """The manifest of a shard's near-duplicates, once it is checked what they were marked against."""
    folder = marked_folder(database, number)
    manifest = folders.read(folder, MARKED)
    if manifest["made_from"] != _marked_from(parts, sets, number):
        raise UserError(f"{folder}: near-duplicates of evaluation text that has changed since; mark them again")
    return manifest


class _ShardWriter:
    """Takes documents and writes their chunks; holds one batch."""

    def __init__(self, folder: Path, recipe: DatabaseRecipe, tokenizer: Any) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.int32)
        self.chunks = self.documents = self.tokens = self.evaluation = self.read = 0
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._waiting: list[tuple[CorpusDocument, str, str]] = []  # document, text for the database, for evaluation
        self._characters = 0

    def __enter__(self) -> _ShardWriter:
        names = ("tokens.bin", "lengths.bin", "documents.bin", "documents.jsonl", "evaluation.jsonl")
        with ExitStack() as opened:  # closes those already open if one cannot be opened
            for name in (*names, "document_signatures.bin", "evaluation_signatures.bin"):
                self._files[name] = opened.enter_context(open(self._folder / name, "wb"))
            opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with ExitStack() as closing:  # closes each file even if the disk is full for another
            for file in self._files.values():
                closing.callback(file.close)
            if kind is None:
                self._flush()

    def add(self, document: CorpusDocument) -> None:
        """Take one document; writes a batch when it is complete."""
        self.read += 1
        self._waiting.append((document, *self.recipe.split(document)))
        self._characters += len(document.text)
        if len(self._waiting) >= BATCH_DOCUMENTS or self._characters >= BATCH_CHARACTERS:
            self._flush()

    def facts(self) -> dict[str, Any]:
        """The manifest's facts about the shard."""
        counts = {name: getattr(self, name) for name in ("read", "documents", "chunks", "tokens", "evaluation")}
        return {"counts": counts, "token_dtype": self.dtype.name}

    def _flush(self) -> None:
        ids = encode(self.tokenizer, [text for _, text, _ in self._waiting])
        for (document, text, held_out), tokens in zip(self._waiting, ids, strict=True):
            self._write_document(document, text, held_out, tokens)
        self._waiting, self._characters = [], 0

    def _write_document(self, document: CorpusDocument, text: str, held_out: str, tokens: Sequence[int]) -> None:
        number = -1
        if tokens:
            number = self.documents
            self._write_chunks(tokens)
            self._write("documents.jsonl", as_json_line(place=document.place, title=document.title).encode())
            self._write("document_signatures.bin", signatures([text]))
            self.documents += 1
        if held_out:
            self._write("evaluation.jsonl", _evaluation_line(number, document, held_out))
            self._write("evaluation_signatures.bin", signatures([held_out]))
            self.evaluation += 1

    def _write_chunks(self, tokens: Sequence[int]) -> None:
        size = self.recipe.chunk_tokens
        count = -(-len(tokens) // size)
        padded = np.zeros(count * size, dtype=self.dtype)
        padded[: len(tokens)] = tokens
        lengths = np.full(count, size, dtype=np.uint16)
        lengths[-1] = len(tokens) - (count - 1) * size
        self._write("tokens.bin", padded)
        self._write("lengths.bin", lengths)
        self._write("documents.bin", np.full(count, self.documents, dtype=np.int32))
        self.chunks += count
        self.tokens += len(tokens)

    def _write(self, name: str, data: np.ndarray | bytes) -> None:
        self._files[name].write(data if isinstance(data, bytes) else data.tobytes())


def _evaluation_line(number: int, document: CorpusDocument, text: str) -> bytes:
    """A line of evaluation text, with the number of its document in the shard; -1 if the shard does not hold it."""
    return as_json_line(document=number, place=document.place, title=document.title, text=text).encode()


def _totals(manifests: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The sum of each count."""
    return {name: sum(manifest["counts"][name] for manifest in manifests) for name in manifests[0]["counts"]}


def _fraction(text: str) -> float:
    """A number in [0, 1) that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / (1 << 56)


def _word_end(text: str, position: int) -> int:
    """The end of the word at a position, or the end of the text."""
    while position < len(text) and not text[position].isspace():
        position += 1
    return position
