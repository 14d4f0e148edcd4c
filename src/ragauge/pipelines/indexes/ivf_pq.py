"""IVF-PQ (Jégou et al., 2011): inverted lists of product-quantised residuals, merged on disk and
memory-mapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ragauge.errors import UserError, error_line
from ragauge.pipelines.database.coder import Coder
from ragauge.pipelines.indexes.base import faiss_files
from ragauge.pipelines.indexes.base.recipe import ID_BYTES, IndexRecipe, SearchResult, VectorSource

POINTS_PER_LIST = 39  # training vectors a centroid that faiss asks for
PQ_CENTROIDS = 256  # of each byte of a code
TRAINED = "trained.faiss"
CODES = "codes.faiss"
MERGED = "index.faiss"
LISTS = "index.ivfdata"


class IvfPq(IndexRecipe):
    """An inverted file of `nlist` lists whose vectors are codes of `pq_bytes` bytes; a search scans
    `nprobe` lists.
    """

    NPROBE_KEY = "nprobe"

    type: Literal["ivf_pq"] = Field("ivf_pq", description="index type")
    nlist: int = Field(64, ge=1, le=1 << 24, description="inverted lists (coarse centroids)")
    pq_bytes: int = Field(
        64, ge=1, le=4096, description="bytes of a code; must divide the vectors' width"
    )
    nprobe: int = Field(8, ge=1, description="lists scanned by a search whose query states none")
    train_vectors: int = Field(
        100_000, ge=1, description="maximum number of vectors that it is trained on"
    )
    iterations: int = Field(10, ge=1, description="k-means iterations")

    @property
    def default_nprobe(self) -> int:
        return min(self.nprobe, self.nlist)

    @property
    def max_nprobe(self) -> int:
        return self.nlist

    def vector_bytes(self, dim: int) -> float:
        return self.pq_bytes + ID_BYTES

    def train_mb(self, dim: int) -> int:
        """Return the sample in float32, twice while it is gathered, and what k-means takes."""
        return 2000 + self.train_vectors * dim * 4 * 3 // 10**6

    def check(self, vectors: VectorSource) -> None:
        if vectors.dim % self.pq_bytes:
            fitting = [n for n in range(1, vectors.dim + 1) if vectors.dim % n == 0]
            raise UserError(
                f"index: pq_bytes {self.pq_bytes} must divide {vectors.dim}: one of {fitting}"
            )

    def train(self, vectors: VectorSource, folder: Path) -> Mapping[str, Any]:
        """Train coarse centroids and product quantiser.

        Raises:
            UserError: there are too few vectors for the lists.
        """
        import faiss

        have = min(self.train_vectors, vectors.total)
        need = max(self.nlist * POINTS_PER_LIST, PQ_CENTROIDS)
        if have < need:
            raise UserError(
                f"index: {self.nlist} lists need {need:,} training vectors and there are {have:,};"
                " lower nlist, take a larger corpus, or raise train_vectors"
            )
        sample = vectors.sample(have)
        factory = f"IVF{self.nlist},PQ{self.pq_bytes}"
        index: Any = faiss.index_factory(vectors.dim, factory, faiss_files.metric(self.metric))
        index.cp.seed = index.pq.cp.seed = self.seed + 1
        index.cp.niter = index.pq.cp.niter = self.iterations
        # sorts codes for a filter that is unused here, most of the time
        index.do_polysemous_training = False
        index.pq.cp.min_points_per_centroid = 1  # no warning from each quantiser of a small corpus
        index.train(sample)
        faiss_files.write(index, folder / TRAINED)
        return {"trained_on": len(sample)}

    def add(self, vectors: VectorSource, shard: int, trained: Path, folder: Path) -> int:
        """Encode one shard.

        Memory: a block of vectors, and the shard's codes, drawn ones included.
        """
        index = faiss_files.read(trained / TRAINED)
        coder = Coder(index)
        for block, ids in vectors.blocks(shard):
            coder.add(block, ids)
        faiss_files.write(index, folder / CODES)
        return index.ntotal

    def merge(self, trained: Path, shards: Sequence[Path], folder: Path) -> None:
        import faiss
        from faiss.contrib.ondisk import merge_ondisk

        index = faiss_files.read(trained / TRAINED)
        codes = [shard / CODES for shard in shards]
        faiss_files.check_room(folder, sum(path.stat().st_size for path in codes))
        with faiss_files.quiet():
            try:
                merge_ondisk(index, [str(path) for path in codes], str(folder / LISTS))
            except (
                RuntimeError
            ) as error:  # faiss maps the files, which it cannot make, extend or read
                raise UserError(
                    f"{folder / LISTS}: cannot be written: {error_line(error, -1)[-200:]}"
                ) from error
            lists: Any = faiss.downcast_InvertedLists(index.invlists)
            lists.filename = LISTS  # not where it was made: a folder is made under another name
            faiss_files.write(index, folder / MERGED)

    def open(self, folder: Path) -> _Lists:
        """Return the index, its lists mapped into memory."""
        import faiss

        # with IO_FLAG_MMAP a search would crash
        flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR
        index = faiss_files.read(folder / MERGED, flags)
        lists: Any = faiss.downcast_InvertedLists(index.invlists)
        lists.prefetch_nthread = 0  # no read-ahead by 32 threads, whatever cores a search was given
        return _Lists(index)


@dataclass(frozen=True)
class _Lists:
    """An opened index; nprobe is the number of lists that are scanned."""

    index: Any

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        import faiss

        scan: Any = faiss.SearchParametersIVF  # whose keywords the library's types do not know
        return self.index.search(vectors, k, params=scan(nprobe=nprobe))
