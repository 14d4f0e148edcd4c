"""What every index type is made of: the keys of its recipe, its steps, and searches over several
parts.
"""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import Field

from ragauge.io.sections import Section

if TYPE_CHECKING:
    import numpy as np

DEFAULT_TYPE = "ivf_pq"
ID_BYTES = 8  # of a vector's number


Block: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Vectors (n, dim) float32 and their ids (n,) int64."""


class VectorSource(Protocol):
    """The vectors that an index is made of."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    @property
    def total(self) -> int:
        """Vectors in the index."""

    def blocks(self, shard: int) -> Iterator[Block]:
        """Yield the vectors of a shard."""

    def sample(self, count: int) -> np.ndarray:
        """At most `count` vectors (n, dim) float32, spread evenly."""


# distances (q, k) float32 and ids (q, k) int64, -1 for none
SearchResult: TypeAlias = "tuple[np.ndarray, np.ndarray]"


class Searchable(Protocol):
    """An opened index."""

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        """Nearest of vectors (q, dim) float32."""


class IndexRecipe(Section):
    """How an index is made from the embeddings of its database.

    A type is a file with one subclass. Steps write folders that appear complete or not at all:
    `train` once, `add` once a shard, `merge` over all shards or those of one server. All keys but
    `parts` and the nprobe are part of the index's identity.
    """

    # key of the default nprobe of a search; None: the search is exact
    NPROBE_KEY: ClassVar[str | None] = None
    # nprobes that a server measures for budgets
    MEASURED: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64)

    type: str = Field(DEFAULT_TYPE, description="index type")
    metric: Literal["l2", "inner_product"] = Field(
        "l2", description="distance: squared L2, or inner product"
    )
    shards: int | None = Field(
        None, ge=1, description="only the first shards of the database; default: all"
    )
    near_duplicates: Literal["drop", "keep"] = Field(
        "drop", description="near-duplicates of evaluation text"
    )
    filled: int | None = Field(
        None, ge=1, description="vectors in all; further ones are drawn around the chunks'"
    )
    parts: int = Field(
        1, ge=1, description="servers that share the index, each with a part of its shards"
    )
    seed: int = Field(0, ge=0, description="seed of training and of drawn vectors")

    @property
    def largest_is_nearest(self) -> bool:
        """Whether a larger distance means a nearer vector."""
        return self.metric == "inner_product"

    @property
    def default_nprobe(self) -> int:
        return getattr(self, self.NPROBE_KEY) if self.NPROBE_KEY else 1

    @property
    def max_nprobe(self) -> int:
        """The largest nprobe of a search; the same for all parts of an index."""
        return 1

    def origin(self) -> dict[str, Any]:
        """Return what the content of the index depends on."""
        return self.model_dump(exclude={"parts", self.NPROBE_KEY or ""})

    def vector_bytes(self, dim: int) -> float:
        """Bytes on disk of one vector in a shard's part of the index."""
        return 4 * dim + ID_BYTES

    def train_mb(self, dim: int) -> int:
        """Memory of the job that trains on vectors of this width."""
        return 2000

    def add_mb(self, vectors: int, dim: int) -> int:
        """Memory of a job that adds this many vectors, which it holds twice while they grow and are
        written.
        """
        return 3000 + int(vectors * self.vector_bytes(dim) * 2 // 10**6)

    def check(self, vectors: VectorSource) -> None:
        """Raise UserError if the recipe does not fit the vectors; called before every step."""

    def train(self, vectors: VectorSource, folder: Path) -> Mapping[str, Any]:
        """Write what all shards share to `folder`; returns entries for its manifest.

        Default: nothing.
        """
        return {}

    @abstractmethod
    def add(self, vectors: VectorSource, shard: int, trained: Path, folder: Path) -> int:
        """Write the vectors of one shard, `vectors.blocks(shard)`, into `folder`; return how many
        there are.
        """

    def merge(self, trained: Path, shards: Sequence[Path], folder: Path) -> None:
        """Write the index that is searched to `folder`.

        Default: the shards' files, prefixed with their numbers.
        """
        for number, shard in enumerate(shards):
            for path in sorted(shard.iterdir()):
                if path.name != "manifest.json":
                    target = folder / f"{number:05d}-{path.name}"
                    try:
                        os.link(path, target)
                    except OSError:  # the file system has no hard links
                        shutil.copyfile(path, target)

    @abstractmethod
    def open(self, folder: Path) -> Searchable:
        """Return the index in a folder that `merge` filled.

        Raises:
            UserError: it cannot be read.
        """


@dataclass(frozen=True)
class Together:
    """Several indexes searched as one: the nearest of the parts' neighbours; ties go to the smaller
    id.
    """

    parts: Sequence[Searchable]
    largest_is_nearest: bool

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        return nearest(
            [part.search(vectors, k, nprobe) for part in self.parts], k, self.largest_is_nearest
        )


def nearest(results: Sequence[SearchResult], k: int, largest_is_nearest: bool) -> SearchResult:
    """Return the nearest of several searches' distances and ids (q, any); ties go to the smaller
    id.
    """
    import numpy as np

    distances, ids = (np.concatenate([result[i] for result in results], axis=1) for i in range(2))
    ranked = np.where(ids < 0, np.inf, -distances if largest_is_nearest else distances)
    order = np.lexsort((ids, ranked), axis=1)[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)
