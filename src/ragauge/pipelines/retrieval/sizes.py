"""Size of chunk databases, from the number and mean bytes of their corpora's documents.

tokens = documents * bytes / BYTES_PER_TOKEN; chunks = tokens / chunk_tokens + documents / 2, as a
document's last chunk is half full in the mean.
"""

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from ragauge.assets.catalog import Entry, entries
from ragauge.pipelines.indexes.base.recipe import IndexRecipe
from ragauge.pipelines.retrieval.settings import DatabaseSettings

# of UTF-8 text, by SmolLM2's tokenizer on 400 documents of C4; 1.07 chunks for 64 tokens there
BYTES_PER_TOKEN = 4.46
UNKNOWN_WIDTH = 768  # of vectors whose encoder is not in the catalog


class DatabaseSize(NamedTuple):
    """What a chunk database holds, in the mean."""

    chunks: float
    held_out: float  # texts whose near-duplicates are marked


def size(settings: DatabaseSettings) -> DatabaseSize | None:
    """Return the size of a database; None if that of a corpus is not known before it is read."""
    corpora = _known_corpora(settings.sources)
    if len(corpora) < len(settings.sources):
        return None
    all_documents = sum(corpus.documents for corpus in corpora)
    share = min(settings.limit or all_documents, all_documents) / all_documents
    documents = share * all_documents
    all_bytes = sum(corpus.documents * corpus.document_bytes for corpus in corpora)
    tokens = share * all_bytes / BYTES_PER_TOKEN
    held_out = _held_out(settings.evaluation, settings.evaluation_share, documents)
    for texts in settings.evaluation_sets.values():
        for corpus in _known_corpora(texts.sources):
            count = min(texts.limit or corpus.documents, corpus.documents)
            held_out += _held_out(texts.part, texts.share, count)
    return DatabaseSize(tokens / settings.chunk_tokens + documents / 2, held_out)


def _held_out(part: str, share: float, documents: float) -> float:
    """Return the held-out texts: a part of every document, some of the documents, or none."""
    return {"none": 0.0, "documents": share * documents}.get(part, documents)


def _known_corpora(sources: Iterable[str]) -> list[Entry]:
    """Return the corpora of the catalog whose number of documents is known."""
    corpora = (entries().get(source) for source in sources)
    return [corpus for corpus in corpora if corpus and corpus.documents]


def width(settings: DatabaseSettings) -> int:
    """Return the dimensions of a database's vectors."""
    encoder = entries().get(settings.encoder)
    return (encoder and encoder.width) or UNKNOWN_WIDTH


def index_vectors(settings: DatabaseSettings, label: str) -> float:
    """Return the vectors of an index; 0 where its corpus's size is not known before it is read."""
    database_size = size(settings)
    chunks = database_size.chunks if database_size else 0.0
    return vectors(settings.indexes[label], chunks, settings)


def index_mb(settings: DatabaseSettings, label: str) -> int:
    """Return the megabytes of a merged index, which a search of all its lists reads."""
    vector_bytes = settings.indexes[label].vector_bytes(width(settings))
    return ceil(index_vectors(settings, label) * vector_bytes / 1e6)


def vectors(index: IndexRecipe, chunks: float, settings: DatabaseSettings) -> float:
    return index.filled or chunks * (index.shards or settings.shards) / settings.shards
