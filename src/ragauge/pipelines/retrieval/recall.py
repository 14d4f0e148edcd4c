"""How many of the exact nearest chunks an index finds (docs/retrieval.md)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import UserError
from ragauge.io import resumed
from ragauge.io.files import text_sha256, write_file
from ragauge.pipelines.database.database import Database, encode
from ragauge.pipelines.database.embed import EncoderChoice
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.indexes.base.faiss_files import metric
from ragauge.pipelines.indexes.base.recipe import SearchResult, nearest
from ragauge.pipelines.retrieval.index import Index, index_folder
from ragauge.pipelines.retrieval.retriever import Retriever
from ragauge.pipelines.retrieval.settings import DatabaseSettings

QUERIES = 200  # held-out chunks that are searched for
KS = (1, 2, 10)


def exact_search(
    vectors: Vectors, queries: np.ndarray, k: int, shards: Iterable[int]
) -> SearchResult:
    """Return the nearest of the own vectors of these shards' chunks, all compared, block by block."""
    import faiss

    heap = faiss.ResultHeap(len(queries), k, keep_max=vectors.recipe.largest_is_nearest)
    for shard in shards:
        for block, ids in vectors.own_blocks(shard):
            distances, rows = faiss.knn(
                queries, block, min(k, len(ids)), metric=metric(vectors.recipe.metric)
            )
            heap.add_result(distances, ids[rows])
    heap.finalize()
    return heap.D, heap.I


def resumable_exact_search(vectors: Vectors, queries: np.ndarray, saved: Path) -> np.ndarray:
    """Search shard after shard: the nearest ids (q, k). `saved`: file of each shard's results, with
    which a killed search goes on.
    """
    recipe = vectors.recipe
    k = max(KS)
    embeddings = [part.sha256 for part in vectors.embeddings]
    # the near-duplicates too
    indexed = vectors.database.sha256, embeddings, recipe.metric, recipe.near_duplicates
    identity = text_sha256(*indexed, k, queries.tolist())

    def search(shard: int) -> list[Any]:
        return [part.tolist() for part in exact_search(vectors, queries, k, [shard])]

    results = resumed.results(saved, identity, range(len(embeddings)), search)
    parts = [(np.array(distances), np.array(ids)) for distances, ids in results]
    return nearest(parts, k, recipe.largest_is_nearest)[1]


def recall(index: Index, queries: np.ndarray, exact: np.ndarray) -> list[dict[str, Any]]:
    """Return the share of the exact k nearest chunks (ids (q, k)) that the index finds, for each k
    and nprobe. Drawn vectors among the k results count as misses; their share is reported.
    """
    rows = []
    for nprobe in index.nprobes:
        ids = index.search_raw(queries, max(KS), nprobe)[1]
        drawn = float(np.mean(ids >= len(index.database)))
        for k in KS:
            hits = (ids[:, :k, None] == exact[:, None, :k]).any(2).mean(1)
            error = float(hits.std(ddof=1) / np.sqrt(len(hits))) if len(hits) > 1 else None
            measured = {"recall": float(hits.mean()), "standard_error": error, "drawn": drawn}
            rows.append({"k": k, index.recipe.NPROBE_KEY or "nprobe": nprobe, **measured})
    return rows


def report_path(folder: Path, label: str) -> Path:
    """Return the file of an index's report, where none is named."""
    return index_folder(folder, label) / "recall.json"


def write_report(
    folder: Path,
    settings: DatabaseSettings,
    label: str,
    out: Path,
    threads: int | None,
) -> list[dict[str, Any]]:
    """Measure the recall of an index with held-out text, and write a report.

    Args:
        folder: the database.
        settings: its settings, for the encoder.
        label: of the index.
        out: file of the report; one next to it has the results of an unfinished search.
        threads: of the encoder and of a search; None: the libraries' own choice.

    Returns:
        The rows of `recall`.

    Raises:
        UserError: there is no held-out text, or an index of another encoder.
    """
    # that device embeds chunks, not queries
    dtype = "float32" if settings.device == "cuda" else settings.dtype
    encoder = EncoderChoice(settings.encoder, settings.engine, threads, dtype)
    retriever = Retriever.open(folder, label, encoder)
    database = retriever.database
    index = retriever.index
    vectors = Vectors.open(folder, index.recipe)
    texts = _held_out_chunks(database)
    queries = retriever.encoder.encode(texts[:: max(1, len(texts) // QUERIES)][:QUERIES])
    saved = out.with_name(f".{out.name}.npz")
    exact = resumable_exact_search(vectors, queries, saved)
    rows = recall(index, queries, exact)
    report = {
        "index": index.sha256,
        "settings": index.recipe.model_dump(),
        "vectors": len(index),
        "filled": index.recipe.filled,
        "queries": len(queries),
        "recall": rows,
    }
    write_file(out, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    saved.unlink()
    return rows


def _held_out_chunks(database: Database) -> list[str]:
    """Return the first whole chunk of each held-out text that is long enough."""
    size = database.chunk_tokens
    encoded = (encode(database.tokenizer, [text.text])[0] for text in database.evaluation())
    texts = [database.tokenizer.decode(ids[:size]) for ids in encoded if len(ids) >= size]
    if not texts:
        raise UserError(f"{database.folder}: no held-out text of {size} tokens to search for")
    return texts
