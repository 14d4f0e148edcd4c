"""A tiny chunk database with its index: a tokenizer of bytes, an encoder of character counts, all
in a second.
"""

import json
from dataclasses import dataclass

import numpy as np

from ragauge.pipelines.database import chunking, database, embed
from ragauge.pipelines.database.chunking import HeldOutSplit
from ragauge.pipelines.indexes.ivf_pq import IvfPq
from ragauge.pipelines.retrieval import index
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.testing import byte_tokenizer

CHUNK = 16
DIM = 32
TAIL = HeldOutSplit()
INDEX = IvfPq(nlist=8, pq_bytes=8, nprobe=4, iterations=2)


class CountEncoder:
    """Texts by the characters in them, through a fixed random projection: like texts have like
    vectors.
    """

    dim = DIM
    projection = np.random.default_rng(0).standard_normal((256, DIM)).astype(np.float32)

    def encode(self, texts, *, query=False):
        counts = np.array(
            [np.bincount(np.frombuffer(t.encode(), np.uint8), minlength=256) for t in texts]
        )
        return embed.normalised(
            counts.reshape(len(texts), 256).astype(np.float32) @ self.projection
        )


@dataclass(frozen=True)
class Choice(embed.EncoderChoice):
    """Stands for a real encoder where vectors are made."""

    sha256: str = "counts"  # type: ignore[assignment]

    def load(self):
        return CountEncoder()


def stand_in(patch):
    """Have every encoder be this one, whatever its name."""
    patch.setattr(embed.EncoderChoice, "sha256", Choice.sha256)
    patch.setattr(embed.EncoderChoice, "load", Choice.load)


def write_corpus(path, documents=80, seed=0):
    """JSON lines of random words, some forty to a document."""
    draw = np.random.default_rng(seed)
    words = [
        "".join(map(chr, draw.integers(97, 123, length))) for length in draw.integers(2, 9, 400)
    ]
    with open(path, "w", encoding="utf-8") as file:
        for number in range(documents):
            text = " ".join(
                words[i] for i in draw.integers(0, len(words), int(draw.integers(20, 60)))
            )
            file.write(json.dumps({"text": text, "title": f"Document {number}"}) + "\n")
    return path


def write_tokenizer(folder):
    """A checkpoint folder with nothing but the tokenizer of bytes."""
    byte_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def recipe(corpus, tokenizer, shards=2, split=TAIL):
    source = {"corpus": str(corpus), "tokenizer": str(tokenizer), "shards": shards}
    held_out = {"evaluation": split.kind, "evaluation_share": split.share}
    return DatabaseSettings(**source, **held_out, chunk_tokens=CHUNK)


def gather(folder, shards):
    """Mark near-duplicates in every shard and gather them."""
    for shard in range(shards):
        chunking.mark(folder, shards, shard)
    chunking.gather(folder, shards)


def build_chunks(folder, made):
    for shard in range(made.shards):
        chunking.build_shard(folder, made, shard)
    gather(folder, made.shards)
    return database.Database(folder)


def build(
    folder,
    made,
    label="ivf",
    settings=INDEX,
    parts=1,
):
    """Database, embeddings and index, the latter in parts as well where there are several."""
    chunks = build_chunks(folder, made)
    for shard in range(made.shards):
        embed.build_embeddings(folder, shard, Choice())
    build_index(folder, label, settings, parts)
    return index.Index(chunks, label)


def build_index(folder, label, settings, parts=1):
    index.train(folder, label, settings)
    for shard in range(settings.shards or len(database.Database(folder).shards)):
        index.add(folder, label, settings, shard)
    index.merge(folder, label, settings)
    for number in range(parts if parts > 1 else 0):
        index.merge(folder, label, settings, (number, parts))


def queries(count=20):
    """Random unit vectors."""
    return embed.normalised(
        np.random.default_rng(1).standard_normal((count, DIM)).astype(np.float32)
    )


def documents(made):
    """Place and title of each document of a database, by number."""
    lines = [
        line
        for shard in made.shards
        for line in (shard.folder / "documents.jsonl").read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]
