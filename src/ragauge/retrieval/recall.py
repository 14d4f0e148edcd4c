"""How many of the exact nearest chunks an index finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.retrieval.indexes.base.faiss_files import metric
from ragauge.retrieval.vectors import BLOCK_VECTORS, Vectors

if TYPE_CHECKING:
    from ragauge.retrieval.index import Index


def exact_search(vectors: Vectors, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of the chunks' own vectors, by comparing with all of them: (q, k) distances and chunk ids.

    Memory: one block.
    """
    import faiss

    heap = faiss.ResultHeap(len(queries), k, keep_max=vectors.recipe.largest_is_nearest)
    for shard, rows in enumerate(vectors.rows):
        own, start = vectors.embeddings[shard].vectors, int(vectors.database.chunk_starts[shard])
        for first in range(0, len(rows), BLOCK_VECTORS):
            taken = rows[first : first + BLOCK_VECTORS]
            block = own[taken].astype(np.float32)
            distances, places = faiss.knn(queries, block, min(k, len(taken)), metric=metric(vectors.recipe.metric))
            heap.add_result(distances, start + taken[places])
    heap.finalize()
    return heap.D, heap.I


def recall(index: Index, vectors: Vectors, queries: np.ndarray, ks: Sequence[int] = (1, 2, 10)) -> list[dict[str, Any]]:
    """The share of the exact k nearest chunks that the index finds, for each k and nprobe.

    The values of nprobe are powers of two and the largest, under the index type's key for it. Drawn vectors among the
    k results take the places of chunks and count as misses; their share is reported.
    """
    exact = exact_search(vectors, queries, max(ks))[1]
    rows = []
    for nprobe in index.nprobes:
        ids = index.search_raw(queries, max(ks), nprobe)[1]
        drawn = float(np.mean(ids >= len(index.database)))
        for k in ks:
            hits = np.array([np.isin(ids[i, :k], exact[i, :k]).sum() / k for i in range(len(queries))])
            error = float(hits.std(ddof=1) / np.sqrt(len(hits))) if len(hits) > 1 else None
            measured = {"recall": float(hits.mean()), "standard_error": error, "drawn": drawn}
            rows.append({"k": k, index.recipe.NPROBE_KEY or "nprobe": nprobe, **measured})
    return rows
