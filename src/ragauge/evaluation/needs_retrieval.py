"""What chunk databases and pipelines will need: disk, hours of the text encoder, lower bounds of GPU time.

A corpus is described by its number of documents and their mean bytes. From these

    tokens = documents * bytes / BYTES_A_TOKEN
    chunks = tokens / chunk_tokens + documents / 2        (a document's last chunk is half full in the mean)
    hours of one core = chunks / CHUNKS_PER_S / 3600

A pipeline's floor is the roofline of its calls of the decoder, reading neighbours included. Searching is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ragauge.assets import entries
from ragauge.cost.roofline import Machine, floor_seconds
from ragauge.cost.shape import Shape
from ragauge.generation.cost import calls
from ragauge.generation.settings import PipelineSettings
from ragauge.retrieval.hub import CORPORA
from ragauge.retrieval.indexes import IndexRecipe
from ragauge.retrieval.settings import DatabaseSettings

BYTES_A_TOKEN = 4.46  # of UTF-8 text, by SmolLM2's tokenizer on 400 documents of C4; 1.07 chunks for 64 tokens there
CHUNKS_PER_S = (
    50  # of 64 tokens, MiniLM in ONNX Runtime on one core; `benchmarks/embedding.py` measures a machine's own
)
TOKEN_BYTES = 2  # of a token in a shard; ids below 65,536
DOCUMENT_BYTES = 512  # of a document in a shard


@dataclass(frozen=True)
class DatabaseNeeds:
    """What a chunk database and its indexes need."""

    documents: int
    tokens: float
    chunks: float
    download_gb: float
    chunks_gb: float
    embeddings_gb: float
    indexes_gb: float
    core_hours: float  # of the text encoder

    @property
    def disk_gb(self) -> float:
        """Everything that stays on disk."""
        return self.chunks_gb + self.embeddings_gb + self.indexes_gb


def database(settings: DatabaseSettings) -> DatabaseNeeds | None:
    """The needs of a database; None if the size of a corpus is not known before it is read."""
    encoder = entries().get(settings.encoder)
    width = encoder.width if encoder else None
    if not set(settings.sources) <= set(CORPORA) or width is None:
        return None
    corpora = [CORPORA[source] for source in settings.sources]
    whole = sum(corpus.documents for corpus in corpora)
    share = min(settings.limit or whole, whole) / whole
    streams = settings.shards if settings.limit else 1  # each shard streams the first documents and keeps its own
    documents = share * whole
    tokens = share * sum(corpus.documents * corpus.document_bytes for corpus in corpora) / BYTES_A_TOKEN
    chunks = tokens / settings.chunk_tokens + documents / 2
    indexes = sum(_index_bytes(index, chunks, settings, width) for index in settings.indexes.values())
    return DatabaseNeeds(
        round(documents),
        tokens,
        chunks,
        streams * share * sum(corpus.download_gb for corpus in corpora) + _evaluation_gb(settings),
        (TOKEN_BYTES * tokens + DOCUMENT_BYTES * documents) / 1e9,
        2 * width * chunks / 1e9,
        indexes / 1e9,
        chunks / CHUNKS_PER_S / 3600,
    )


def _evaluation_gb(settings: DatabaseSettings) -> float:
    """What is streamed for evaluation sets, of the corpora whose sizes are known."""
    known = [(CORPORA[s], one.limit) for one in settings.evaluation_sets.values() for s in one.sources if s in CORPORA]
    return sum(c.download_gb * min(limit or c.documents, c.documents) / c.documents for c, limit in known)


def _index_bytes(index: IndexRecipe, chunks: float, settings: DatabaseSettings, width: int) -> float:
    """The shards' vectors, the merged index, and its parts where servers share it."""
    vectors = index.filled or chunks * (index.shards or settings.shards) / settings.shards
    copies = 2 + (index.parts > 1)
    return copies * vectors * index.vector_bytes(width)


def pipeline_seconds(entry: PipelineSettings, shape: Shape, dtype: str, machine: Machine) -> float:
    """The floor of one sequence, all of its passes; neighbours count as joint attention reads them."""
    return passes(entry) * sum(floor_seconds(call, shape, dtype, machine) for call in calls(entry))


def passes(entry: PipelineSettings) -> int:
    """How often a sequence is read or written: generations have one more that is not kept."""
    if entry.task == "perplexity":
        return 1
    return entry.trials + int(entry.trials > 1 or entry.nprobe == "hide")
