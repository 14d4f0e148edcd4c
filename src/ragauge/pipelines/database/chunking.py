"""Building a chunk database, shard by shard: `database` describes the folders, docs/retrieval.md
the steps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.digest import digest
from ragauge.io.files import text_sha256
from ragauge.io.progress import bar
from ragauge.pipelines.database import database as stored
from ragauge.pipelines.database.corpus import Corpus
from ragauge.pipelines.database.database import (
    BuiltFolder,
    EvaluationSet,
    Shard,
    encode,
    load_tokenizer,
    tokenizer_sha256,
)
from ragauge.pipelines.database.documents import CorpusDocument, ShardShare
from ragauge.pipelines.database.near_duplicates import THRESHOLD, near_duplicates
from ragauge.text import MARKS, UNSPACED

if TYPE_CHECKING:  # a database depends on its own keys, not on all code of settings
    from ragauge.pipelines.retrieval.settings import DatabaseSettings, EvaluationSetSettings

# where no word is cut; in scripts without blanks, before a character that is no combining mark
WORD_BOUNDARY = re.compile(rf"\s|(?![{MARKS}])[{UNSPACED}]")
BATCH_DOCUMENTS = 64  # tokenised together
SHARD_FILES = (
    "tokens.bin",
    "lengths.bin",
    "documents.bin",
    "documents.jsonl",
    "evaluation.jsonl",
)


@dataclass(frozen=True)
class HeldOutSplit:
    """Which part of each document is evaluation text, and which goes into the database."""

    # the last share of each document, a share of the documents, nothing, everything
    kind: Literal["tail", "documents", "none", "all"] = "tail"
    share: float = 0.2

    def __call__(self, document: CorpusDocument) -> tuple[str, str]:
        """Return the text for the database and the text for evaluation; either may be empty."""
        text = document.text
        if self.kind == "tail":
            boundary = WORD_BOUNDARY.search(text, round(len(text) * (1 - self.share)))
            cut = boundary.start() if boundary else len(text)
            return text[:cut], text[cut:].strip()
        # in [0, 1)
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / (1 << 56)
        held_out = self.kind == "all" or (self.kind == "documents" and number < self.share)
        return ("", text) if held_out else (text, "")


def build_shard(database: Path, settings: DatabaseSettings, number: int) -> bool:
    """Make one shard, unless it exists; returns whether it was made.

    Raises:
        UserError: unreadable or empty corpus.
    """
    share = ShardShare(number, settings.shards)
    split = HeldOutSplit(settings.evaluation, settings.evaluation_share)
    tokenizer = load_tokenizer(settings.tokenizer)
    corpus = Corpus.from_settings(settings)
    made_from = {
        "corpus": corpus.identity(share),
        "tokenizer": tokenizer_sha256(tokenizer),
        "chunk_tokens": settings.chunk_tokens,
        "split": asdict(split),
    }

    def make(folder: Path) -> dict[str, Any]:
        documents = bar(f"cutting shard {number}", "document", iterable=corpus.documents(share))
        counts = dict.fromkeys(("read", "documents", "chunks", "tokens", "evaluation"), 0)
        dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.int32)
        with ExitStack() as opened:  # closes each file even if the disk is full for another
            files = {name: opened.enter_context(open(folder / name, "wb")) for name in SHARD_FILES}
            cuts = ((document, *split(document)) for document in documents)
            for batch in iter(lambda: list(islice(cuts, BATCH_DOCUMENTS)), []):
                encoded = encode(tokenizer, [text for _, text, _ in batch])
                for (document, _, held_out), ids in zip(batch, encoded, strict=True):
                    tokens = np.array(ids, dtype=dtype)
                    _write_document(
                        files, counts, document, held_out, tokens, settings.chunk_tokens
                    )
        if not counts["chunks"]:
            sources = ", ".join(corpus.sources)
            raise UserError(
                f"corpus {sources}: shard {number} of {settings.shards} gets no text; use fewer shards"
            )
        return {"tokenizer_source": settings.tokenizer, "counts": counts, "token_dtype": dtype.name}

    return folders.build(stored.shard_folder(database, number), stored.SHARD, made_from, make)


def build_evaluation_set(database: Path, label: str, settings: EvaluationSetSettings) -> bool:
    """Cut the text of an evaluation set, unless it exists; returns whether it was made.

    Errors as of `build_shard`.
    """
    corpus = Corpus.from_settings(settings)
    split = HeldOutSplit(settings.part, settings.share)

    def make(folder: Path) -> dict[str, Any]:
        written = 0
        with open(folder / "evaluation.jsonl", "wb") as lines:
            for document in bar(
                f"cutting {label}", "document", iterable=corpus.documents(ShardShare())
            ):
                if text := split(document)[1]:
                    lines.write(
                        _json_line(
                            document=-1, place=document.place, title=document.title, text=text
                        )
                    )
                    written += 1
        if not written:
            raise UserError(
                f"corpus {', '.join(corpus.sources)}: gives the evaluation set {label!r} no text"
            )
        return {"counts": {"evaluation": written}}

    made_from = {"corpus": corpus.identity(ShardShare()), "split": asdict(split)}
    return folders.build(
        stored.evaluation_folder(database, label), stored.EVALUATION, made_from, make
    )


def mark(database: Path, shards: int, number: int, sets: Sequence[str] = ()) -> bool:
    """Mark the documents of one shard that contain a piece of the evaluation text of any, or of the
    sets of these labels, as the tokenizer reads both. Returns whether there was anything to do.

    Raises:
        UserError: a shard is missing, truncated, or of another corpus, tokenizer or chunk size than
            the first; an evaluation set was not cut.
    """
    parts, evaluation_sets, marked_from = _parts(database, shards, sets)

    def make(folder: Path) -> dict[str, Any]:
        shard = parts[number]
        tokenizer = shard.tokenizer

        def test_of(sources: Sequence[BuiltFolder]) -> Callable[[str], bool]:
            texts = [text.text for source in sources for text in source.evaluation()]
            return near_duplicates(_read_by(tokenizer, encode(tokenizer, texts)), THRESHOLD)

        tests = [test_of(parts), *(test_of([one]) for one in evaluation_sets.values())]
        ids = bar(f"comparing shard {number}", "document", iterable=shard.document_tokens())
        # (document, test)
        found = np.array([[test(text) for test in tests] for text in _read_by(tokenizer, ids)])
        marked = np.flatnonzero(found.any(axis=1))
        marked.astype(np.int64).tofile(folder / "documents.bin")
        chunks = np.bincount(shard.chunk_documents, minlength=shard.documents)[marked].sum()
        counts = {"near_duplicate_documents": len(marked), "near_duplicate_chunks": int(chunks)}
        for label, count in zip(evaluation_sets, found[:, 1:].sum(axis=0).tolist(), strict=True):
            counts[f"near_duplicate_documents_of_{label}"] = count
        return {"counts": counts}

    made_from = {"shard": parts[number].sha256, **marked_from}
    return folders.build(stored.marked_folder(database, number), stored.MARKED, made_from, make)


def gather(database: Path, shards: int, sets: Sequence[str] = ()) -> bool:
    """List the shards and their near-duplicates in order. Returns and raises as `mark`."""
    parts, _, gathered_from = _parts(database, shards, sets)
    marked = [
        BuiltFolder(stored.marked_folder(database, number), stored.MARKED)
        for number in range(shards)
    ]
    for part, marks in zip(parts, marked, strict=True):
        if marks.manifest["made_from"] != {"shard": part.sha256, **gathered_from}:
            raise UserError(
                f"{marks.folder}: near-duplicates of evaluation text that has changed since; mark them again"
            )

    def make(folder: Path) -> dict[str, Any]:
        starts = np.cumsum([0, *(part.documents for part in parts)])
        with open(folder / "near_duplicates.bin", "wb") as file:
            for marks, start in zip(marked, starts, strict=False):
                file.write((start + marks.array("documents.bin", "int64")).tobytes())
        return {
            "counts": _totals(parts) | _totals(marked),
            "tokenizer": parts[0].manifest["made_from"]["tokenizer"],
            "tokenizer_source": parts[0].manifest["tokenizer_source"],
            "chunk_tokens": parts[0].chunk_tokens,
            "corpus": text_sha256([part.manifest["made_from"]["corpus"] for part in parts]),
        }

    return folders.build(database / "database", stored.DATABASE, gathered_from, make)


def _parts(
    database: Path, shards: int, sets: Sequence[str]
) -> tuple[list[Shard], dict[str, EvaluationSet], dict[str, Any]]:
    """Return all shards, which must be of one database, the evaluation sets by label, and the
    identities of both.
    """
    parts = [Shard(database, number) for number in range(shards)]
    for part, key in product(parts[1:], ("tokenizer", "chunk_tokens", "split")):
        if part.manifest["made_from"][key] != parts[0].manifest["made_from"][key]:
            raise UserError(
                f"{part.folder}: of another {key} than {parts[0].folder}; rebuild the shards"
            )
    evaluation_sets = {label: EvaluationSet(database, label) for label in sorted(sets)}
    identities: dict[str, Any] = {
        "shards": [part.sha256 for part in parts],
        "near_duplicates": digest("ragauge.pipelines.database.near_duplicates"),
    }
    if evaluation_sets:
        identities["evaluation_sets"] = {
            label: other.sha256 for label, other in evaluation_sets.items()
        }
    return parts, evaluation_sets, identities


def _read_by(tokenizer: Any, ids: Iterable[list[int]]) -> Iterator[str]:
    """Texts as a tokenizer has them, which may lack their case, accents or spaces."""
    return (tokenizer.decode(each) for each in ids)


def _totals(built: Sequence[BuiltFolder]) -> dict[str, int]:
    counts = [folder.manifest["counts"] for folder in built]
    return {name: sum(part[name] for part in counts) for name in counts[0]}


def _write_document(
    files: Mapping[str, IO[bytes]],
    counts: dict[str, int],
    document: CorpusDocument,
    held_out: str,
    ids: np.ndarray,
    chunk_tokens: int,
) -> None:
    """Write the chunks of a document, whose text for the database has the tokens `ids`, and its
    evaluation text `held_out`.
    """
    source = {"place": document.place, "title": document.title}
    number = counts["documents"] if len(ids) else -1
    chunks = -(-len(ids) // chunk_tokens)
    counts["read"] += 1
    if chunks:
        lengths = np.full(chunks, chunk_tokens, dtype=np.uint16)
        lengths[-1] = len(ids) - (chunks - 1) * chunk_tokens
        files["tokens.bin"].write(np.pad(ids, (0, -len(ids) % chunk_tokens)).tobytes())
        files["lengths.bin"].write(lengths.tobytes())
        files["documents.bin"].write(np.full(chunks, number, dtype=np.int32).tobytes())
        files["documents.jsonl"].write(_json_line(**source))
        counts["documents"] += 1
        counts["chunks"] += chunks
        counts["tokens"] += len(ids)
    if held_out:
        files["evaluation.jsonl"].write(_json_line(document=number, **source, text=held_out))
        counts["evaluation"] += 1


def _json_line(**values: Any) -> bytes:
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()
