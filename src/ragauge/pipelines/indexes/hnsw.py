"""HNSW (Malkov and Yashunin, 2018): a navigable graph over the vectors themselves, memory-mapped.

Graphs cannot be merged: each shard has one, a search asks every one and keeps the nearest.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ragauge.pipelines.indexes.base import faiss_files
from ragauge.pipelines.indexes.base.recipe import (
    ID_BYTES,
    IndexRecipe,
    SearchResult,
    Together,
    VectorSource,
)

EMPTY = "trained.faiss"
GRAPH = "graph.faiss"
IDS = "ids.bin"
VALUE_BYTES = 4  # of a vector's dimension
LINK_BYTES = 4
MAX_NPROBE = 1 << 12  # whatever the size of a part


class Hnsw(IndexRecipe):
    """A graph with `m` links a vector (2m on its lowest level); a search keeps `ef_search`
    candidates.
    """

    NPROBE_KEY = "ef_search"
    MEASURED = (16, 32, 64, 128, 256, 512)

    type: Literal["hnsw"] = Field("hnsw", description="index type")
    m: int = Field(32, ge=2, le=1024, description="links per vector on each level above the lowest")
    ef_construction: int = Field(200, ge=1, description="candidates while the graph is built")
    ef_search: int = Field(64, ge=1, description="candidates of a search whose query states none")

    @property
    def max_nprobe(self) -> int:
        return MAX_NPROBE

    def vector_bytes(self, dim: int) -> float:
        """Return the vector, its links on the lowest level (the others add about one in m), and its
        id.
        """
        return VALUE_BYTES * dim + 2 * (self.m + 1) * LINK_BYTES + ID_BYTES

    def train(self, vectors: VectorSource, folder: Path) -> Mapping[str, Any]:
        """Write an empty graph, which has nothing to train."""
        import faiss

        factory = f"HNSW{self.m},Flat"
        index: Any = faiss.index_factory(vectors.dim, factory, faiss_files.metric(self.metric))
        index.hnsw.efConstruction = self.ef_construction
        faiss_files.write(index, folder / EMPTY)
        return {}

    def add(self, vectors: VectorSource, shard: int, trained: Path, folder: Path) -> int:
        """Build the graph of one shard.

        On one thread it is reproducible; with several it depends on their order.
        """
        from faiss.swigfaiss import RandomGenerator

        index = faiss_files.read(trained / EMPTY)
        # which draws the levels, and is not in the file
        index.hnsw.rng = RandomGenerator(self.seed + 1)
        with open(folder / IDS, "wb") as file:
            for block, ids in vectors.blocks(shard):
                index.add(block)
                file.write(ids.astype(np.int64).tobytes())
        faiss_files.write(index, folder / GRAPH)
        return index.ntotal

    def open(self, folder: Path) -> Together:
        """Return the graphs, mapped into memory: links and vectors are read as a search reaches
        them.
        """
        graphs, ids = (sorted(folder.glob(f"*-{name}")) for name in (GRAPH, IDS))
        return Together(list(map(_Graph, graphs, ids)), self.largest_is_nearest)


class _Graph:
    """The opened graph of one shard; nprobe is the number of candidates."""

    def __init__(self, graph: Path, ids: Path) -> None:
        import faiss

        self._index = faiss_files.read(graph, faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
        self._ids = np.fromfile(ids, dtype=np.int64)

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        import faiss

        walk: Any = faiss.SearchParametersHNSW  # type: ignore[attr-defined]
        distances, rows = self._index.search(vectors, k, params=walk(efSearch=nprobe))
        return distances, np.where(rows < 0, -1, self._ids[rows])
