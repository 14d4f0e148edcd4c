"""IVF-PQ indexes over a chunk database: trained on a sample, filled by shard, merged on disk, memory-mapped.

    <database>/indexes/<label>/trained/        the coarse centroids and the product quantiser, without vectors
    <database>/indexes/<label>/shards/00000/   the codes of one shard
    <database>/indexes/<label>/merged/         index.faiss and index.ivfdata, which a search maps into memory
    <database>/indexes/<label>/part-0-of-2/    the same of every second shard, for a service of several servers

A *filled* index holds, besides the chunks' own vectors, vectors drawn around them until it has the size asked for: it
costs what a database of that size costs to search. Its neighbours are real chunks all the same: a drawn vector stands
for the chunk that it was drawn around.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.progress import bar
from ragauge.retrieval.coder import Coder
from ragauge.retrieval.database import Database
from ragauge.retrieval.embed import Embeddings, normalised
from ragauge.retrieval.settings import IndexRecipe

TRAINED, ADDED, MERGED = "trained index", "codes of a shard", "merged index"
FAISS = ("trained.faiss", "codes.faiss", "index.faiss")  # faiss takes memory for whatever sizes a file states
POINTS_PER_LIST = 39  # faiss asks for as many training vectors a centroid
PQ_CENTROIDS = 256  # of each byte of a code
BLOCK_VECTORS = 16384  # in memory at a time, in float32
LITTLE_BYTES = 1 << 20  # a disk with less room is full
NOISE = 1.0  # length of what is added to a unit vector: the sum has a cosine of 0.7 with it, less than a good neighbour


def index_folder(database: Path, label: str) -> Path:
    """Where an index lies."""
    return database / "indexes" / label


@dataclass(frozen=True)
class Vectors:
    """The vectors that go into an index: the chunks' own, then those drawn around them."""

    database: Database
    embeddings: tuple[Embeddings, ...]  # of the shards that the index takes
    recipe: IndexRecipe

    @classmethod
    def open(cls, folder: Path, recipe: IndexRecipe) -> Vectors:
        """Raises UserError where shards or embeddings are missing, cut short or not of one encoder."""
        database = Database(folder)
        count = len(database.shards) if recipe.shards is None else recipe.shards
        if count > len(database.shards):
            raise UserError(f"index: shards is {count}; the database {folder} has {len(database.shards)}")
        embeddings = tuple(Embeddings.open(folder, number) for number in range(count))
        for part in embeddings[1:]:
            if part.manifest["made_from"]["encoder"] != embeddings[0].manifest["made_from"]["encoder"]:
                raise UserError(
                    f"{part.folder}: of another encoder than {embeddings[0].folder}; embed the shards again"
                )
        vectors = cls(database, embeddings, recipe)
        vectors.check()
        return vectors

    def check(self) -> None:
        """Raise UserError where the recipe does not fit the vectors."""
        if self.dim % self.recipe.pq_bytes:
            fitting = [n for n in range(1, self.dim + 1) if self.dim % n == 0]
            raise UserError(f"index: pq_bytes {self.recipe.pq_bytes} must divide {self.dim}: one of {fitting}")
        if self.recipe.filled is not None and self.recipe.filled < self.real:
            raise UserError(f"index: filled is {self.recipe.filled:,}; the database has {self.real:,} vectors already")

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.embeddings[0].dim

    @property
    def encoder_sha256(self) -> str:
        """Identity of the encoder."""
        return str(self.embeddings[0].manifest["made_from"]["encoder"])

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """For each shard the rows that are indexed, ascending."""
        return [self._rows(number) for number in range(len(self.embeddings))]

    @cached_property
    def real(self) -> int:
        """Vectors of chunks."""
        return sum(len(rows) for rows in self.rows)

    @property
    def total(self) -> int:
        """Vectors in the index."""
        return self.recipe.filled or self.real

    def drawn(self, shard: int) -> int:
        """How many vectors are drawn around those of a shard: its part of what is missing."""
        before = sum(len(rows) for rows in self.rows[:shard])
        missing = self.total - self.real
        return missing * (before + len(self.rows[shard])) // self.real - missing * before // self.real

    def blocks(self, shard: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(vectors (n, dim) float32, ids (n,) int64) of a shard: its own, then the drawn ones.

        The id of a drawn vector is, modulo the chunks of the database, the chunk it was drawn around.
        """
        rows, own = self.rows[shard], self.embeddings[shard].vectors
        start = int(self.database.chunk_starts[shard])
        for first in range(0, len(rows), BLOCK_VECTORS):
            taken = rows[first : first + BLOCK_VECTORS]
            yield own[taken].astype(np.float32), start + taken
        for first in range(0, self.drawn(shard), BLOCK_VECTORS):
            numbers = np.arange(first, min(first + BLOCK_VECTORS, self.drawn(shard)))
            taken, copies = rows[numbers % len(rows)], 1 + numbers // len(rows)
            draw = np.random.default_rng([self.recipe.seed, shard, first])
            yield _around(own[taken].astype(np.float32), draw), start + taken + copies * len(self.database)

    def sample(self, count: int) -> np.ndarray:
        """About `count` vectors (n, dim) float32, evenly over shards and rows, drawn ones in proportion."""
        step = max(1, self.total // count)
        return np.concatenate([part for shard in range(len(self.rows)) for part in self._sampled(shard, step)])

    def _sampled(self, shard: int, step: int) -> Iterator[np.ndarray]:
        """Every `step`-th of a shard's own vectors, and as many drawn as every `step`-th of those would be."""
        rows, own = self.rows[shard], self.embeddings[shard].vectors
        yield own[rows[::step]].astype(np.float32)
        drawn_rows = rows[np.arange(0, self.drawn(shard), step) % len(rows)]
        yield _around(own[drawn_rows].astype(np.float32), np.random.default_rng([self.recipe.seed, shard]))

    def _rows(self, shard: int) -> np.ndarray:
        chunks = np.arange(self.database.shards[shard].chunks)
        if self.recipe.near_duplicates == "keep" or not len(self.database.near_duplicates):
            return chunks
        documents = self.database.documents(chunks + self.database.chunk_starts[shard])
        return chunks[~np.isin(documents, self.database.near_duplicates)]


def _around(vectors: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Unit vectors around unit vectors (n, dim): a normal step of length `NOISE` on average."""
    step = draw.standard_normal(vectors.shape, dtype=np.float32)
    step *= NOISE / math.sqrt(vectors.shape[1])
    step += vectors
    return normalised(step)


# --- making ---


def train(folder: Path, label: str, recipe: IndexRecipe) -> bool:
    """Trains the coarse centroids and the product quantiser on a sample; returns whether there was anything to do.

    Memory: the sample, at most `train_vectors` of them in float32.

    Raises:
        UserError: the database has too few vectors for the lists, or a file of it is missing or cut short.
    """
    import faiss

    vectors = Vectors.open(folder, recipe)
    made_from = _origin(vectors)

    def make(unfinished: Path) -> dict[str, Any]:
        _check_enough(vectors)
        sample = vectors.sample(min(recipe.train_vectors, vectors.total))
        index: Any = faiss.index_factory(vectors.dim, f"IVF{recipe.nlist},PQ{recipe.pq_bytes}", _metric(recipe.metric))
        index.cp.seed = index.pq.cp.seed = recipe.seed + 1
        index.cp.niter = index.pq.cp.niter = recipe.iterations
        index.do_polysemous_training = False  # sorts codes for a filter that is not used here, in most of the time
        index.pq.cp.min_points_per_centroid = 1  # no warning from each quantiser of a small corpus
        index.train(sample)
        _write(index, unfinished / "trained.faiss")
        return {"trained_on": len(sample)}

    return folders.build(index_folder(folder, label) / "trained", TRAINED, made_from, make)


def add(folder: Path, label: str, recipe: IndexRecipe, shard: int) -> bool:
    """Encodes the vectors of one shard; returns whether there was anything to do.

    Memory: a block of vectors, and the shard's codes: `pq_bytes` + 8 bytes a vector, drawn ones included.
    """
    import faiss

    vectors = Vectors.open(folder, recipe)
    if not 0 <= shard < len(vectors.embeddings):
        raise UserError(f"shard {shard}: the index takes {len(vectors.embeddings)} shards, counted from 0")
    trained = _trained(folder, label, vectors)
    made_from = {"trained": folders.sha256(trained), "embeddings": vectors.embeddings[shard].sha256}

    def make(unfinished: Path) -> dict[str, Any]:
        index = faiss.read_index(str(trained / "trained.faiss"))
        coder = Coder(index)
        count = len(vectors.rows[shard]) + vectors.drawn(shard)
        with bar(f"adding shard {shard} to {label}", "vector", count, unit_scale=True) as shown:
            for block, ids in vectors.blocks(shard):
                coder.add(block, ids)
                shown.update(len(ids))
        _write(index, unfinished / "codes.faiss")
        return {"vectors": int(index.ntotal)}

    return folders.build(_added_folder(folder, label, shard), ADDED, made_from, make)


def merge(folder: Path, label: str, recipe: IndexRecipe, part: tuple[int, int] | None = None) -> bool:
    """Merges the shards' codes on disk; returns whether there was anything to do.

    Args:
        part: (number, of) takes every `of`-th shard alone, for one of several servers. Ids stay those of the whole
            database and centroids are shared, so that the parts' results merge to those of one index.
    """
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    vectors = Vectors.open(folder, recipe)
    trained = _trained(folder, label, vectors)
    taken = range(len(vectors.embeddings))[slice(part[0], None, part[1])] if part else range(len(vectors.embeddings))
    if not taken:
        raise UserError(f"part {part}: the index takes {len(vectors.embeddings)} shards; none is left for this part")
    shards = [_added_folder(folder, label, shard) for shard in taken]
    counts = [folders.read(shard, ADDED, hashed=FAISS)["vectors"] for shard in shards]
    _check_added(shards, folders.sha256(trained))
    made_from = {**_origin(vectors), "shards": [folders.sha256(shard) for shard in shards]}

    def make(unfinished: Path) -> dict[str, Any]:
        index = faiss.read_index(str(trained / "trained.faiss"))
        codes = [shard / "codes.faiss" for shard in shards]
        _check_room(unfinished, sum(path.stat().st_size for path in codes))
        with _quiet_library():
            merge_ondisk(index, [str(path) for path in codes], str(unfinished / "index.ivfdata"))
            _write(index, unfinished / "index.faiss")
        return {"vectors": sum(counts), "nprobe": recipe.nprobe, "dim": vectors.dim, "filled": recipe.filled}

    return folders.build(merged_folder(folder, label, part), MERGED, made_from, make)


def _write(index: Any, path: Path) -> None:
    """Write an index; raises OSError, as other writers do, where the disk does not take it.

    Through a file of Python's: faiss's own says nothing of what cannot be written when it is closed.
    """
    import faiss

    try:
        with open(path, "wb") as file:
            writer = faiss.PyCallbackIOWriter(file.write)  # type: ignore[attr-defined]
            faiss.write_index(index, writer)
    except (RuntimeError, SystemError) as error:  # what an OSError becomes on its way through faiss
        code = errno.ENOSPC if shutil.disk_usage(path.parent).free < LITTLE_BYTES else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def _check_room(folder: Path, needed: int) -> None:
    """Raise OSError where a disk lacks the room for lists that are mapped into memory: the system would kill us."""
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; {needed:,} bytes are needed", str(folder))


def merged_folder(folder: Path, label: str, part: tuple[int, int] | None = None) -> Path:
    """Where the index that is searched lies, or a part of it."""
    return index_folder(folder, label) / (f"part-{part[0]}-of-{part[1]}" if part else "merged")


def _added_folder(folder: Path, label: str, shard: int) -> Path:
    return index_folder(folder, label) / "shards" / f"{shard:05d}"


def _origin(vectors: Vectors) -> dict[str, Any]:
    return {
        "database": vectors.database.sha256,
        "embeddings": [part.sha256 for part in vectors.embeddings],
        "encoder": vectors.encoder_sha256,
        **vectors.recipe.origin(),
    }


def _trained(folder: Path, label: str, vectors: Vectors) -> Path:
    """The trained index; raises UserError where it is of another database or recipe."""
    trained = index_folder(folder, label) / "trained"
    if folders.read(trained, TRAINED, hashed=FAISS)["made_from"] != _origin(vectors):
        raise UserError(f"{trained}: trained for another database or with other settings; train it again")
    return trained


def _check_added(shards: Sequence[Path], trained: str) -> None:
    for shard in shards:
        if folders.read(shard, ADDED)["made_from"]["trained"] != trained:
            raise UserError(f"{shard}: codes of another trained index; add the shard again")


def _check_enough(vectors: Vectors) -> None:
    recipe, have = vectors.recipe, min(vectors.recipe.train_vectors, vectors.total)
    need = max(recipe.nlist * POINTS_PER_LIST, PQ_CENTROIDS)
    if have < need:
        most = have // POINTS_PER_LIST if have >= PQ_CENTROIDS else 0
        choice = f"set nlist to at most {most}" if most else f"the least is {PQ_CENTROIDS}"
        raise UserError(
            f"index: {recipe.nlist} lists want {need:,} training vectors and there are {have:,}; {choice}, "
            "take a larger corpus, or raise train_vectors"
        )


def _metric(name: str) -> int:
    import faiss

    return int({"l2": faiss.METRIC_L2, "inner_product": faiss.METRIC_INNER_PRODUCT}[name])


# --- searching ---


class Index:
    """A merged index, its lists mapped into memory."""

    def __init__(self, database: Database, label: str, part: tuple[int, int] | None = None, verify: bool = False):
        """Opens the index of a database.

        Raises:
            UserError: it is missing, cut short, changed (with `verify`), or of another database.
        """
        folder = merged_folder(database.folder, label, part)
        self.manifest = folders.read(folder, MERGED, verify, hashed=FAISS)
        self.database = database
        self.folder = folder
        if self.manifest["made_from"]["database"] != database.sha256:
            raise UserError(f"{folder}: an index of another database or of another state of it; build it again")
        self._index = _mapped(folder / "index.faiss")

    def __len__(self) -> int:
        """Vectors, drawn ones included."""
        return int(self.manifest["vectors"])

    @cached_property
    def sha256(self) -> str:
        """The identity of the index."""
        return folders.sha256(self.folder)

    @property
    def nlist(self) -> int:
        """Inverted lists."""
        return int(self.manifest["made_from"]["nlist"])

    @property
    def nprobe(self) -> int:
        """Lists scanned where a query does not say."""
        return min(int(self.manifest["nprobe"]), self.nlist)

    @property
    def metric(self) -> str:
        """`l2` (squared, smaller is nearer) or `inner_product` (larger is nearer)."""
        return str(self.manifest["made_from"]["metric"])

    @property
    def encoder_sha256(self) -> str:
        """Identity of the encoder whose vectors it holds."""
        return str(self.manifest["made_from"]["encoder"])

    @property
    def filled(self) -> int | None:
        """Vectors in all where some are drawn; every figure from such an index says so."""
        filled: int | None = self.manifest["filled"]
        return filled

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> tuple[np.ndarray, np.ndarray]:
        """Nearest chunks of vectors (q, dim): distances (q, k) float32 and chunk ids (q, k) int64, -1 for none.

        Raises UserError where nprobe is not between 1 and the number of lists.
        """
        distances, ids = self.search_raw(vectors, k, nprobe)
        return distances, np.where(ids < 0, -1, ids % len(self.database))

    def search_raw(self, vectors: np.ndarray, k: int, nprobe: int) -> tuple[np.ndarray, np.ndarray]:
        """As `search`, with the ids of the index: those from the number of chunks on are of drawn vectors."""
        import faiss

        if not 1 <= nprobe <= self.nlist:
            raise UserError(f"nprobe {nprobe}: must be from 1 to the index's {self.nlist} lists")
        scan: Any = faiss.SearchParametersIVF  # whose keywords the library's types do not know
        found = self._index.search(np.ascontiguousarray(vectors, dtype=np.float32), k, params=scan(nprobe=nprobe))
        distances: np.ndarray = found[0]
        ids: np.ndarray = found[1]
        worst = np.inf if self.metric == "l2" else -np.inf
        return np.where(ids < 0, worst, distances).astype(np.float32), ids


def _mapped(path: Path) -> Any:
    """The index of a file, its lists mapped into memory."""
    import faiss

    try:
        with _quiet_library():  # with IO_FLAG_MMAP a search on lists on disk would crash
            index = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR)
    except RuntimeError as error:
        raise UserError(f"{path}: faiss cannot read it ({str(error).splitlines()[-1][:200]})") from error
    return _without_prefetch(index)


def _without_prefetch(index: Any) -> Any:
    """The index without the 32 threads that would read ahead, whatever cores a search was given."""
    import faiss

    lists: Any = faiss.downcast_InvertedLists(index.invlists)
    lists.prefetch_nthread = 0
    return index


def exact_search(vectors: Vectors, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of the chunks' own vectors, by comparing with all of them: (q, k) distances and chunk ids.

    Memory: one block.
    """
    import faiss

    largest = vectors.recipe.metric == "inner_product"
    heap = faiss.ResultHeap(len(queries), k, keep_max=largest)
    for shard, rows in enumerate(vectors.rows):
        own, start = vectors.embeddings[shard].vectors, int(vectors.database.chunk_starts[shard])
        for first in range(0, len(rows), BLOCK_VECTORS):
            taken = rows[first : first + BLOCK_VECTORS]
            block = own[taken].astype(np.float32)
            distances, places = faiss.knn(queries, block, min(k, len(taken)), metric=_metric(vectors.recipe.metric))
            heap.add_result(distances, start + taken[places])
    heap.finalize()
    return heap.D, heap.I


def recall(index: Index, vectors: Vectors, queries: np.ndarray, ks: Sequence[int] = (1, 2, 10)) -> list[dict[str, Any]]:
    """The share of the exact k nearest chunks that the index finds, for each k and nprobe (powers of two).

    Drawn vectors among the k found take the places of chunks and count as misses; their share is told.
    """
    exact = exact_search(vectors, queries, max(ks))[1]
    nprobes = sorted(
        {*(1 << power for power in range(index.nlist.bit_length()) if 1 << power <= index.nlist), index.nlist}
    )
    rows = []
    for nprobe in nprobes:
        found = index.search_raw(queries, max(ks), nprobe)[1]
        drawn = float(np.mean(found >= len(index.database)))
        for k in ks:
            hits = np.array([np.isin(found[i, :k], exact[i, :k]).sum() / k for i in range(len(queries))])
            error = float(hits.std(ddof=1) / np.sqrt(len(hits))) if len(hits) > 1 else None
            rows.append(
                {"k": k, "nprobe": nprobe, "recall": float(hits.mean()), "standard_error": error, "drawn": drawn}
            )
    return rows


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Keep what faiss prints on standard output, at once or when C's buffer is written, off it."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
