"""Dense retrieval over many passages: a chunk database of them with an HNSW index, kept in the study's folder.

A passage is a document of the database: one chunk or, where it is longer than an encoder reads at once, several, of
which the best one counts. Shard by shard what is done stays done: a study that was stopped goes on where it was, and
one with other questions over the same documents encodes nothing again.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragauge.io.files import write_file
from ragauge.rankers.dense import load_encoder
from ragauge.retrieval import chunking, embed, index
from ragauge.retrieval.corpus import Corpus
from ragauge.retrieval.database import Database
from ragauge.retrieval.indexes.hnsw import Hnsw

SHARD = 50_000  # passages
CHUNK_TOKENS = 256  # what most encoders read of a text
CANDIDATES = 4  # of the search, by passages wanted
LABEL = "hnsw"


@dataclass(frozen=True)
class Place:
    """Where the database is kept, and whose tokenizer cuts its chunks."""

    folder: Path
    tokenizer: str  # a model's name or source


def search(place: Place, questions: Sequence[str], texts: Sequence[str], depth: int, encoder: str) -> list[list[int]]:
    """The texts nearest to each question by cosine, the best first; HNSW misses some of them now and then.

    Raises:
        UserError: the disk is full, or the encoder cannot be had.
    """
    database = _built(place, texts, encoder)
    vectors = embed.normalised(load_encoder(encoder).encode(questions, query=True))
    nprobe = min(CANDIDATES * depth, Hnsw().max_nprobe)
    _, ids = index.Index(database, LABEL).search(vectors, min(2 * depth, nprobe), nprobe)
    return [_passages(database, row[row >= 0])[:depth] for row in ids]


def _passages(database: Database, chunks: np.ndarray) -> list[int]:
    """The passages of chunks, each once, in their order."""
    documents = database.documents(chunks).tolist()
    return [int(database.describe(document)["title"]) for document in dict.fromkeys(documents)]


def _built(place: Place, texts: Sequence[str], encoder: str) -> Database:
    """The database of the texts with its index, as far as it is not there yet."""
    shards = _write(place.folder, texts)
    corpus = Corpus((f"{glob.escape(str(place.folder.resolve()))}/passages-*.jsonl",))
    recipe = chunking.DatabaseRecipe(corpus, place.tokenizer, CHUNK_TOKENS, chunking.Split("none"), shards)
    choice = embed.EncoderChoice(encoder, "torch")  # as exact search encodes, prefixes included
    for number in range(shards):
        chunking.build_shard(place.folder, recipe, number)
        embed.build_embeddings(place.folder, number, choice)
    for number in range(shards):
        chunking.mark(place.folder, shards, number)
    chunking.gather(place.folder, shards)
    hnsw = Hnsw(metric="inner_product", near_duplicates="keep", stored="float16")
    index.train(place.folder, LABEL, hnsw)
    for number in range(shards):
        index.add(place.folder, LABEL, hnsw, number)
    index.merge(place.folder, LABEL, hnsw)
    return Database(place.folder)


def _write(folder: Path, texts: Sequence[str]) -> int:
    """The texts as JSON lines, numbered by their titles, a file a shard; returns how many files."""
    starts = range(0, len(texts), SHARD)
    for former in folder.glob("passages-*.jsonl"):
        if int(former.stem.rpartition("-")[2]) >= len(starts):
            former.unlink()
    for shard, start in enumerate(starts):
        numbered = enumerate(texts[start : start + SHARD], start)
        lines = [json.dumps({"title": str(i), "text": text}, ensure_ascii=False) + "\n" for i, text in numbered]
        write_file(folder / f"passages-{shard:05d}.jsonl", "".join(lines).encode())
    return len(starts)
