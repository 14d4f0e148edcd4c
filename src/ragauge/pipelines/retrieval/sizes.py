"""Size of chunk databases, from the number and mean bytes of their corpora's documents
(docs/retrieval.md).

tokens = documents * bytes / BYTES_PER_TOKEN chunks = tokens / chunk_tokens + documents / 2
(a document's last chunk is half full in the mean)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from ragauge.assets.catalog import Entry, entries
from ragauge.pipelines.indexes.base.recipe import IndexRecipe
from ragauge.pipelines.retrieval.settings import DatabaseSettings

# of UTF-8 text, by SmolLM2's tokenizer on 400 documents of C4; 1.07 chunks for 64 tokens there
BYTES_PER_TOKEN = 4.46
TOKEN_BYTES = 2  # of a token in a shard; ids below 65,536
# of 64 tokens, embedded by MiniLM in ONNX Runtime on one core, where no rate is measured
CHUNKS_PER_S = 50
DOCUMENT_BYTES = 512  # of a document in a shard
GB = 1e9


@dataclass(frozen=True)
class DatabaseSize:
    """What a chunk database and its indexes take."""

    documents: int
    held_out: float  # texts whose near-duplicates are marked
    chunks: float
    download_gb: float
    chunks_gb: float
    embeddings_gb: float
    indexes_gb: float

    @property
    def disk_gb(self) -> float:
        return self.chunks_gb + self.embeddings_gb + self.indexes_gb


def size(settings: DatabaseSettings) -> DatabaseSize | None:
    """Return the size of a database; None if that of a corpus is not known before it is read."""
    encoder = entries().get(settings.encoder)
    corpora = _sized(settings.sources)
    if len(corpora) < len(settings.sources) or not (encoder and encoder.width):
        return None
    all_documents = sum(corpus.documents for corpus in corpora)
    share = min(settings.limit or all_documents, all_documents) / all_documents
    # each shard streams the first documents and stores its own
    streams = settings.shards if settings.limit else 1
    documents = share * all_documents
    tokens = (
        share
        * sum(corpus.documents * corpus.document_bytes for corpus in corpora)
        / BYTES_PER_TOKEN
    )
    chunks = tokens / settings.chunk_tokens + documents / 2
    sets = list(_evaluation_sets(settings))
    # The shards' vectors, the merged index, and its parts where servers share it.
    indexes = [(index, 2 + (index.parts > 1)) for index in settings.indexes.values()]
    return DatabaseSize(
        round(documents),
        _held_out(settings.evaluation, settings.evaluation_share, documents)
        + sum(texts for texts, _ in sets),
        chunks,
        streams * share * sum(map(_streamed_gb, corpora)) + sum(download for _, download in sets),
        (TOKEN_BYTES * tokens + DOCUMENT_BYTES * documents) / GB,
        2 * encoder.width * chunks / GB,
        sum(
            copies * vectors(i, chunks, settings) * i.vector_bytes(encoder.width)
            for i, copies in indexes
        )
        / GB,
    )


def _held_out(part: str, share: float, documents: float) -> float:
    """Texts of a corpus that are held out: a part of every document, some of the documents, or
    none.
    """
    return {"none": 0.0, "documents": share * documents}.get(part, documents)


def _evaluation_sets(settings: DatabaseSettings) -> Iterator[tuple[float, float]]:
    """(texts, GB that are streamed) of each corpus of an evaluation set whose size is known."""
    for evaluation_set in settings.evaluation_sets.values():
        for corpus in _sized(evaluation_set.sources):
            documents = min(evaluation_set.limit or corpus.documents, corpus.documents)
            yield (
                _held_out(evaluation_set.part, evaluation_set.share, documents),
                _streamed_gb(corpus) * documents / corpus.documents,
            )


def _sized(sources: Iterable[str]) -> list[Entry]:
    """Return the corpora of the catalog whose number of documents is known."""
    return [
        entries()[source]
        for source in sources
        if source in entries() and entries()[source].documents
    ]


def _streamed_gb(corpus: Entry) -> float:
    """Return what a shard streams of a corpus; one that is an asset is counted as such."""
    return corpus.download_gb or 0.0 if corpus.source.startswith("hf:") else 0.0


def width(settings: DatabaseSettings) -> int:
    """Dimensions of a database's vectors; 768 where the encoder's are not known before it is read."""
    encoder = entries().get(settings.encoder)
    return encoder.width if encoder and encoder.width else 768


def index_vectors(settings: DatabaseSettings, label: str) -> float:
    """Vectors of an index of a database; 0 where the size of its corpus is not known before it is
    read.
    """
    database_size = size(settings)
    index = settings.indexes[label]
    return vectors(index, database_size.chunks, settings) if database_size else index.filled or 0.0


def index_mb(settings: DatabaseSettings, label: str) -> int:
    """Megabytes of a merged index, which a search of all its lists reads; 0 where its vectors are
    not known.
    """
    return ceil(
        index_vectors(settings, label) * settings.indexes[label].vector_bytes(width(settings)) / 1e6
    )


def vectors(index: IndexRecipe, chunks: float, settings: DatabaseSettings) -> float:
    return index.filled or chunks * (index.shards or settings.shards) / settings.shards
