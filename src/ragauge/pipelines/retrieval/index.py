"""Indexes over a chunk database, of any type of `indexes/`: built step by step in folders, opened
and searched.

<database>/indexes/<label>/trained/        what all shards share, without vectors
<database>/indexes/<label>/shards/00000/   the vectors of one shard
<database>/indexes/<label>/merged/         what a search reads
<database>/indexes/<label>/part-0-of-2/    the same of every second shard, for a service of several
servers
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.pipelines.database.database import BuiltFolder, Database
from ragauge.pipelines.database.vectors import Vectors
from ragauge.pipelines.indexes.base.recipe import IndexRecipe, SearchResult
from ragauge.pipelines.indexes.base.types import read_recipe

TRAINED = "trained index"
ADDED = "codes of a shard"
MERGED = "merged index"
TRUSTED = "*.faiss"  # faiss allocates whatever sizes a file states, so that it is hashed first


def index_folder(database: Path, label: str) -> Path:
    return database / "indexes" / label


def merged_folder(folder: Path, label: str, part: tuple[int, int] | None = None) -> Path:
    return index_folder(folder, label) / (f"part-{part[0]}-of-{part[1]}" if part else "merged")


def _added_folder(folder: Path, label: str, shard: int) -> Path:
    return index_folder(folder, label) / "shards" / f"{shard:05d}"


def train(folder: Path, label: str, recipe: IndexRecipe) -> bool:
    """Train what all shards share; returns whether there was anything to do.

    Raises:
        UserError: as `Vectors.open`.
    """
    vectors = Vectors.open(folder, recipe)
    target = index_folder(folder, label) / "trained"
    return folders.build(
        target, TRAINED, _origin(vectors), lambda unfinished: recipe.train(vectors, unfinished)
    )


def add(folder: Path, label: str, recipe: IndexRecipe, shard: int) -> bool:
    """Encode the vectors of one shard; returns whether there was anything to do."""
    vectors = Vectors.open(folder, recipe)
    if not 0 <= shard < len(vectors.embeddings):
        raise UserError(
            f"shard {shard}: the index takes {len(vectors.embeddings)} shards, counted from 0"
        )
    trained = _trained(folder, label, vectors)
    made_from = {"trained": trained.sha256, "embeddings": vectors.embeddings[shard].sha256}

    def make(unfinished: Path) -> Mapping[str, Any]:
        return {"vectors": recipe.add(vectors, shard, trained.folder, unfinished)}

    return folders.build(_added_folder(folder, label, shard), ADDED, made_from, make)


def merge(
    folder: Path, label: str, recipe: IndexRecipe, part: tuple[int, int] | None = None
) -> bool:
    """Merge the shards into the index that is searched; returns whether there was anything to do.

    A part (number, of) takes only every `of`-th shard; its ids stay those of the whole database.
    """
    vectors = Vectors.open(folder, recipe)
    trained = _trained(folder, label, vectors)
    every = range(len(vectors.embeddings))
    shards = [
        BuiltFolder(_added_folder(folder, label, shard), ADDED, TRUSTED)
        for shard in (every[part[0] :: part[1]] if part else every)
    ]
    if not shards:
        raise UserError(
            f"part {part}: the index takes {len(every)} shards; none is left for this part"
        )
    for shard in shards:
        if shard.manifest["made_from"]["trained"] != trained.sha256:
            raise UserError(f"{shard.folder}: codes of another trained index; add the shard again")
    made_from = {**_origin(vectors), "shards": [shard.sha256 for shard in shards]}

    def make(unfinished: Path) -> Mapping[str, Any]:
        recipe.merge(trained.folder, [shard.folder for shard in shards], unfinished)
        return {
            "vectors": sum(shard.manifest["vectors"] for shard in shards),
            **recipe.model_dump(include={recipe.NPROBE_KEY or ""}),
            "dim": vectors.dim,
            "filled": recipe.filled,
        }

    return folders.build(merged_folder(folder, label, part), MERGED, made_from, make)


def _origin(vectors: Vectors) -> dict[str, Any]:
    return {
        "database": vectors.database.sha256,
        "embeddings": [part.sha256 for part in vectors.embeddings],
        "encoder": vectors.embeddings[0].manifest["made_from"]["encoder"],
        **vectors.recipe.origin(),
    }


def _trained(folder: Path, label: str, vectors: Vectors) -> BuiltFolder:
    """Return the trained index; raises UserError if it is of another database or recipe."""
    trained = BuiltFolder(index_folder(folder, label) / "trained", TRAINED, TRUSTED)
    if trained.manifest["made_from"] != _origin(vectors):
        raise UserError(
            f"{trained.folder}: trained for another database or with other settings; train it again"
        )
    return trained


class Index(BuiltFolder):
    def __init__(self, database: Database, label: str, part: tuple[int, int] | None = None) -> None:
        """Raises UserError: it is missing, truncated, or of another database."""
        super().__init__(merged_folder(database.folder, label, part), MERGED, TRUSTED)
        self.database = database
        if self.manifest["made_from"]["database"] != database.sha256:
            raise UserError(
                f"{self.folder}: an index of another database, or of an earlier state of it; "
                "build it again"
            )
        self.recipe = read_recipe(self.manifest, len(database.shards))
        self.encoder_sha256: str = self.manifest["made_from"]["encoder"]  # whose vectors it holds
        self._opened = self.recipe.open(self.folder)

    def __len__(self) -> int:
        """Vectors, drawn ones included."""
        return self.manifest["vectors"]

    @property
    def nprobes(self) -> list[int]:
        """Powers of two below the largest nprobe, and the largest."""
        largest = self.recipe.max_nprobe
        return sorted({*(1 << power for power in range(largest.bit_length())), largest})

    def search(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        """Nearest chunks of vectors (q, dim): distances (q, k) float32 and chunk ids (q, k) int64,
        -1 for none. Distances are squared L2 (smaller is nearer) or inner products (larger is
        nearer), as the recipe's metric says.

        Raises:
            UserError: nprobe is not between 1 and the largest.
        """
        distances, ids = self.search_raw(vectors, k, nprobe)
        return distances, np.where(ids < 0, -1, ids % len(self.database))

    def search_raw(self, vectors: np.ndarray, k: int, nprobe: int) -> SearchResult:
        """As `search`, with the ids of the index: those from the number of chunks on are of drawn
        vectors.
        """
        if not 1 <= nprobe <= self.recipe.max_nprobe:
            name = self.recipe.NPROBE_KEY or "nprobe"
            raise UserError(
                f"{name} {nprobe}: must be from 1 to {self.recipe.max_nprobe}, the largest of this index"
            )
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        distances, ids = self._opened.search(rows, k, nprobe)
        worst = -np.inf if self.recipe.largest_is_nearest else np.inf
        return np.where(ids < 0, worst, distances).astype(np.float32), ids
