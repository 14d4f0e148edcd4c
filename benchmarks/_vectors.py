"""A server of vectors alone: a query is the number of a row of query vectors.

    python benchmarks/_vectors.py --folder FOLDER [--part 0 --of 2] [--port N]

The index is the package's HNSW; all else is the service as `ragauge serve` runs it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from _common import parse_options
from ragauge.pipelines.indexes.hnsw import GRAPH, IDS, Hnsw
from ragauge.pipelines.retrieval.retriever import About, Neighbour, Neighbours, Query
from ragauge.pipelines.service.process import serve
from ragauge.pipelines.service.server import Server
from ragauge.pipelines.service.settings import ServerSettings

TOKENS = 64  # of a chunk, as the service sends them
RECIPE = Hnsw()
CLUSTERS = 256


def make(folder: Path, vectors: int, queries: int, dim: int, seed: int = 0) -> None:
    """Write base.npy and queries.npy: vectors of unit length around random centres."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((CLUSTERS, dim))
    for name, count in (("base", vectors), ("queries", queries)):
        rows = centres[draw.integers(0, CLUSTERS, count)] + draw.standard_normal((count, dim))
        np.save(
            folder / f"{name}.npy",
            (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32),
        )


def build(folder: Path, part: int = 0, of: int = 1) -> Path:
    """The folder of the index of every `of`-th vector; built if it is not there."""
    import faiss

    index = folder / f"part-{part}-of-{of}"
    if index.exists():
        return index
    base = np.load(folder / "base.npy")
    ids = np.arange(part, len(base), of)
    graph = faiss.index_factory(base.shape[1], f"HNSW{RECIPE.m},Flat")
    graph.hnsw.efConstruction = RECIPE.ef_construction
    graph.add(base[ids])
    index.mkdir()
    faiss.write_index(graph, str(index / f"00000-{GRAPH}"))
    ids.astype(np.int64).tofile(index / f"00000-{IDS}")
    return index


class Rows:
    """Searches for rows of queries.npy by their number, and looks chunks of random tokens up."""

    def __init__(self, folder: Path, part: int = 0, of: int = 1) -> None:
        self._queries = np.load(folder / "queries.npy")
        self._vectors = len(np.load(folder / "base.npy", mmap_mode="r"))
        self._index = RECIPE.open(build(folder, part, of))
        self._tokens = np.random.default_rng(0).integers(0, 30000, (4096, TOKENS)).astype(np.int32)

    def describe(self) -> About:
        """As the service describes itself; numbers of queries are its tokens."""
        return About(
            "vectors",
            "rows",
            "rows",
            "l2",
            self._vectors,
            RECIPE.max_nprobe,
            len(self._queries),
            TOKENS,
        )

    def detokenize(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Nothing: the tokens are random."""
        return [""] * len(sequences)

    def search_together(self, requests: Sequence[Sequence[Query]]) -> list[list[Neighbours]]:
        """One call of the index for each k and nprobe."""
        started = time.perf_counter()
        queries = [query for request in requests for query in request]
        groups: dict[tuple[int, int], list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault((query.k, query.nprobe or RECIPE.default_nprobe), []).append(place)
        found: dict[int, Neighbours] = {}
        for (k, nprobe), places in groups.items():
            rows = self._queries[[next(iter(queries[place].tokens or [0])) for place in places]]
            distances, ids = self._index.search(rows, k, nprobe)
            seconds = {"encode": 0.0, "search": time.perf_counter() - started, "lookup": 0.0}
            for i, place in enumerate(places):
                found[place] = self._neighbours(ids[i], distances[i], nprobe, seconds)
        answers = iter(found[place] for place in range(len(queries)))
        return [[next(answers) for _ in request] for request in requests]

    def _neighbours(
        self, ids: np.ndarray, distances: np.ndarray, nprobe: int, seconds: dict[str, float]
    ) -> Neighbours:
        tokens = self._tokens[ids % len(self._tokens)].tolist()
        found = zip(ids.tolist(), distances.tolist(), tokens, strict=True)
        return Neighbours([Neighbour(n, d, n, text, []) for n, d, text in found], nprobe, seconds)


def in_threads(work: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=task) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    args = parse_options(
        __doc__,
        folder=(Path, "where the vectors lie"),
        part=(0, "the number of this server"),
        of=(1, "servers in all"),
        port=(0, "0: a free one"),
        while_stdin_open=(False, "stop with the process that started it"),
    )
    rows = Rows(args.folder, args.part, args.of)
    server = Server(rows, ServerSettings(port=args.port))
    serve(server, 5.0, while_stdin_open=args.while_stdin_open)


if __name__ == "__main__":
    main()
