"""The chunk database: documents as chunks of 64 tokens, memory-mapped, shard by shard.

    <database>/shards/00000/    tokens.bin       (chunk, chunk_tokens) uint16 or int32, 0 beyond the
                                chunk's length lengths.bin      (chunk,) uint16: tokens of the
                                chunk; a document's last may be short documents.bin    (chunk,)
                                int32: the chunk's document, counted within the shard
                                documents.jsonl  place and title of each document evaluation.jsonl
                                text that is held out, and the document that it was cut from
                                manifest.json    counts, hashes, and what it was made from
    <database>/evaluation/LABEL/       evaluation.jsonl: text of another corpus
    <database>/near_duplicates/00000/  documents.bin (n,) int64: the shard's documents that are that
    contain evaluation text <database>/database/        near_duplicates.bin, numbered in the database, and
    the manifest that names the shards

A chunk's number is its place in the database, shard after shard; its continuation is the next chunk
of the same document.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer as tokenizer_of_folder
from ragauge.assets.tokenizer import plain_reader
from ragauge.errors import UserError, unknown
from ragauge.io import folders
from ragauge.io.jsonl import read_jsonl

SHARD = "shard of a chunk database"
DATABASE = "chunk database"
EVALUATION = "evaluation set"
MARKED = "list of a shard's near-duplicates"


@dataclass(frozen=True)
class HeldOutText:
    """Text that the database does not hold."""

    # the document that it ends, numbered in the database; -1 if it is a whole document
    document: int
    place: str
    title: str
    text: str


def shard_folder(database: Path, number: int) -> Path:
    return database / "shards" / f"{number:05d}"


def evaluation_folder(database: Path, label: str) -> Path:
    return database / "evaluation" / label


def marked_folder(database: Path, number: int) -> Path:
    return database / "near_duplicates" / f"{number:05d}"


class BuiltFolder:
    """A folder of a database with its manifest; its arrays are memory-mapped."""

    def __init__(self, folder: Path, kind: str, hashed: str = "") -> None:
        """Raises UserError if a file is missing, truncated; `hashed` as of `folders.read`."""
        self.folder = folder
        self.manifest = folders.read(folder, kind, hashed=hashed)
        self.sha256 = folders.sha256(folder)  # its identity

    def array(self, name: str, dtype: str, *row: int) -> np.ndarray:
        """Return the rows of a file: (rows, *row)."""
        path = self.folder / name
        if not path.stat().st_size:  # which cannot be mapped
            return np.empty((0, *row), dtype=dtype)
        return np.memmap(path, dtype=dtype, mode="r").reshape(-1, *row)

    def evaluation(self) -> Iterator[HeldOutText]:
        """Yield the evaluation text, its documents counted within the folder."""
        yield from (
            HeldOutText(**record) for _, record in read_jsonl(self.folder / "evaluation.jsonl")
        )


class Shard(BuiltFolder):
    def __init__(self, database: Path, number: int) -> None:
        super().__init__(shard_folder(database, number), SHARD)
        counts = self.manifest["counts"]
        self.chunks = counts["chunks"]
        self.documents = counts["documents"]
        self.chunk_tokens = self.manifest["made_from"]["chunk_tokens"]  # of a full chunk
        # (chunk, chunk_tokens)
        self.tokens = self.array("tokens.bin", self.manifest["token_dtype"], self.chunk_tokens)
        self.lengths = self.array("lengths.bin", "uint16")  # (chunk,) tokens of each chunk
        # (chunk,), counted within the shard
        self.chunk_documents = self.array("documents.bin", "int32")

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the chunks.

        Raises:
            UserError: its source has changed since.
        """
        source = self.manifest["tokenizer_source"]
        tokenizer = load_tokenizer(source)
        if tokenizer_sha256(tokenizer) != self.manifest["made_from"]["tokenizer"]:
            raise UserError(
                f"{self.folder}: its tokenizer {source!r} is no longer the one that it was made with"
            )
        return tokenizer

    def texts(self, rows: slice) -> list[str]:
        """Return chunks as text."""
        chunks = zip(self.tokens[rows], self.lengths[rows], strict=True)
        return [self.tokenizer.decode(row[:length].tolist()) for row, length in chunks]

    def document_tokens(self) -> Iterator[list[int]]:
        """Yield the tokens of each document."""
        is_token = np.arange(self.chunk_tokens) < self.lengths[:, None]
        ends = np.searchsorted(self.chunk_documents, range(self.documents), side="right")
        for first, end in pairwise([0, *ends]):
            yield self.tokens[first:end][is_token[first:end]].tolist()


class EvaluationSet(BuiltFolder):
    """Text of another corpus that is predicted with the database, which holds no document of it."""

    def __init__(self, database: Path, label: str) -> None:
        super().__init__(evaluation_folder(database, label), EVALUATION)


class Database:
    """All shards as one: chunks and documents are numbered shard after shard."""

    def __init__(self, folder: Path) -> None:
        """Open a gathered database; the sizes of its files are checked, not their hashes.

        Raises:
            UserError: it was not gathered, or a file is missing, truncated, changed or of another
                build.
        """
        self.folder = folder
        self.manifest = folders.read(folder / "database", DATABASE)
        # the identity of its shards and of the near-duplicates
        self.sha256 = folders.sha256(folder / "database")
        names = self.manifest["made_from"]["shards"]
        self.shards = [Shard(folder, number) for number in range(len(names))]
        for shard, name in zip(self.shards, names, strict=True):
            if shard.sha256 != name:
                raise UserError(
                    f"{shard.folder}: not the shard that the database was gathered from; gather it again"
                )
        self.chunk_tokens: int = self.manifest["chunk_tokens"]  # of a full chunk
        # documents read and stored, chunks, tokens, evaluation texts, and near-duplicates of them
        self.counts: dict[str, int] = self.manifest["counts"]
        self.chunk_starts = np.cumsum([0, *(shard.chunks for shard in self.shards)])
        self.document_starts = np.cumsum([0, *(shard.documents for shard in self.shards)])

    def __len__(self) -> int:
        """Chunks."""
        return int(self.chunk_starts[-1])

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the chunks.

        Raises:
            UserError: its source has changed since.
        """
        return self.shards[0].tokenizer

    @cached_property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        return len(self.tokenizer)

    def check_tokenizer(self, tokenizer: Any, name: str) -> None:
        """Raise UserError unless a tokenizer is the one that the chunks were made with."""
        if tokenizer_sha256(tokenizer) != self.manifest["tokenizer"]:
            source = self.manifest["tokenizer_source"]
            raise UserError(
                f"{self.folder}: its chunks were cut by the tokenizer of {source!r}, not by {name!r}'s"
            )

    def passage(self, chunk: int, continuation: int) -> tuple[int, list[int]]:
        """(number of its document, tokens of a chunk and of as many that follow it in the
        document).
        """
        chain = [np.array([chunk])]
        for _ in range(continuation):
            chain.append(self.continuations(chain[-1]))
        tokens = [token for row in self.tokens(np.concatenate(chain)) for token in row]
        return int(self.documents(chain[0])[0]), tokens

    @cached_property
    def near_duplicates(self) -> np.ndarray:
        """Numbers of the documents that contain a piece of evaluation text, ascending."""
        return np.fromfile(self.folder / "database" / "near_duplicates.bin", dtype=np.int64)

    def tokens(self, ids: np.ndarray) -> list[list[int]]:
        """Tokens of each chunk (n,); none for id -1."""
        padded = self._take(ids, lambda shard: shard.tokens, 0, self.chunk_tokens)
        lengths = self._take(ids, lambda shard: shard.lengths, 0)
        return [row[:length].tolist() for row, length in zip(padded, lengths, strict=True)]

    def documents(self, ids: np.ndarray) -> np.ndarray:
        """Return the document of each chunk (n,) int64, numbered in the database; -1 for id -1."""
        local = self._take(ids, lambda shard: shard.chunk_documents, -1).astype(np.int64)
        starts = self.document_starts[self._shard_of(np.asarray(ids))]
        return np.where(local < 0, -1, local + starts)

    def continuations(self, ids: np.ndarray) -> np.ndarray:
        """Return the next chunk of the same document (n,) int64; -1 at a document's end and for id
        -1.
        """
        ids = np.asarray(ids, dtype=np.int64)
        following = np.where((ids >= 0) & (ids + 1 < len(self)), ids + 1, -1)
        return np.where(self.documents(following) == self.documents(ids), following, -1)

    def evaluation_set(self, label: str) -> EvaluationSet:
        """Text of another corpus.

        Raises:
            UserError: none of that label, or changed since the database was gathered.
        """
        hashes = self.manifest["made_from"].get("evaluation_sets", {})
        if label not in hashes:
            raise unknown("evaluation set", label, hashes, str(self.folder))
        opened = EvaluationSet(self.folder, label)
        if opened.sha256 != hashes[label]:
            raise UserError(
                f"{opened.folder}: has changed since the database was gathered; gather it again"
            )
        return opened

    def evaluation(self, label: str | None = None) -> Iterator[HeldOutText]:
        """Yield the database's held-out text, in the order of the shards, or that of one of its
        evaluation sets.
        """
        if label is not None:
            yield from self.evaluation_set(label).evaluation()
            return
        for start, shard in zip(self.document_starts, self.shards, strict=False):
            for text in shard.evaluation():
                yield (
                    replace(text, document=text.document + int(start))
                    if text.document >= 0
                    else text
                )

    def _shard_of(self, ids: np.ndarray) -> np.ndarray:
        return np.clip(
            np.searchsorted(self.chunk_starts, ids, side="right") - 1, 0, len(self.shards) - 1
        )

    def _take(
        self, ids: np.ndarray, rows: Callable[[Shard], np.ndarray], missing: int, *width: int
    ) -> np.ndarray:
        """Rows of the shards' arrays by chunk, int32."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and int(ids.max()) >= len(self):
            raise UserError(f"{self.folder}: no chunk {int(ids.max())}; there are {len(self):,}")
        taken = np.full((len(ids), *width), missing, dtype=np.int32)
        owners = np.where(ids < 0, -1, self._shard_of(ids))
        for owner in np.unique(owners[owners >= 0]):
            positions = np.flatnonzero(owners == owner)
            taken[positions] = rows(self.shards[owner])[ids[positions] - self.chunk_starts[owner]]
        return taken


def load_tokenizer(source: str) -> Any:
    return tokenizer_of_folder(resolver.resolve(source))


def tokenizer_sha256(tokenizer: Any) -> str:
    """Return the hash of everything that a tokenizer's ids depend on."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()


def encode(tokenizer: Any, texts: Sequence[str], special: bool = False) -> list[list[int]]:
    """Token ids of each text, without a bound; control tokens that a text quotes are plain words.

    `special`: with the special tokens that the tokenizer adds.
    """
    if not texts:  # which the tokenizer does not accept
        return []
    read = plain_reader(tokenizer, texts)(list(texts), add_special_tokens=special, verbose=False)
    return read["input_ids"]
