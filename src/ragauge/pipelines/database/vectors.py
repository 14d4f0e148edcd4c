"""The vectors that go into an index: the chunks' own, and those drawn around them to fill it
(docs/retrieval.md).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.database.embed import Embeddings, normalised
from ragauge.pipelines.indexes.base.recipe import Block, IndexRecipe

BLOCK_VECTORS = 16384  # in memory at a time, in float32
# length of what is added to a unit vector: the sum has a cosine of 0.7 with it, less than a good
# neighbour
NOISE = 1.0


@dataclass(frozen=True)
class Vectors:
    """The vectors that go into an index: the chunks' own, then those drawn around them."""

    database: Database
    embeddings: tuple[Embeddings, ...]  # of the shards that the index takes
    recipe: IndexRecipe

    @classmethod
    def open(cls, folder: Path, recipe: IndexRecipe) -> Self:
        """Open the shards.

        Raises:
            UserError: shards or embeddings are missing, truncated or not of one encoder, or do not
                fit.
        """
        database = Database(folder)
        embeddings = tuple(
            Embeddings(folder, number) for number in range(recipe.shards or len(database.shards))
        )
        first = embeddings[0]
        for part in embeddings[1:]:
            if part.manifest["made_from"]["encoder"] != first.manifest["made_from"]["encoder"]:
                raise UserError(
                    f"{part.folder}: of a different encoder than {first.folder}; "
                    "embed the shards again"
                )
        vectors = cls(database, embeddings, recipe)
        if recipe.filled is not None and recipe.filled < vectors.real:
            raise UserError(
                f"index: filled is {recipe.filled:,}; the database has {vectors.real:,} vectors already"
            )
        recipe.check(vectors)
        return vectors

    @property
    def dim(self) -> int:
        return self.embeddings[0].dim

    def rows(self, shard: int) -> np.ndarray:
        """Return the rows of a shard that are indexed, ascending; those of all shards would not fit
        in memory.
        """
        rows = np.arange(self.database.shards[shard].chunks)
        excluded = self.database.near_duplicates
        if self.recipe.near_duplicates == "drop" and len(excluded):
            documents = self.database.documents(rows + self.database.chunk_starts[shard])
            rows = rows[~np.isin(documents, excluded)]
        return rows

    @cached_property
    def counts(self) -> list[int]:
        return [len(self.rows(shard)) for shard in range(len(self.embeddings))]

    @property
    def real(self) -> int:
        """Vectors of chunks."""
        return sum(self.counts)

    @property
    def total(self) -> int:
        return self.recipe.filled or self.real

    def drawn(self, shard: int) -> int:
        """Return how many vectors are drawn around those of a shard: its share of the missing ones."""
        missing = self.total - self.real
        before, after = (
            missing * sum(self.counts[:stop]) // max(1, self.real) for stop in (shard, shard + 1)
        )
        return after - before

    def blocks(self, shard: int) -> Iterator[Block]:
        """Yield the vectors of a shard; ids of drawn ones are chunks, modulo their number."""
        own = self.counts[shard]
        every = own + self.drawn(shard)
        with bar(f"vectors of shard {shard}", "vector", every) as progress:
            for block, ids in chain(self.own_blocks(shard), self._blocks(shard, own, every)):
                yield block, ids
                progress.update(len(ids))

    def own_blocks(self, shard: int) -> Iterator[Block]:
        """As `blocks`, without drawn vectors."""
        return self._blocks(shard, 0, self.counts[shard])

    def sample(self, count: int) -> np.ndarray:
        """At most `count` vectors (n, dim) float32, evenly over shards and rows, drawn ones in
        proportion.
        """
        count = min(count, self.total)
        positions = np.arange(count) * self.total // count
        start = 0
        parts = list[np.ndarray]()
        for shard, own in enumerate(self.counts):
            end = start + own + self.drawn(shard)
            sampled = positions[slice(*np.searchsorted(positions, (start, end)))] - start
            parts.append(self._at(shard, self.rows(shard), sampled, 0))
            start = end
        return np.concatenate(parts)

    def _blocks(self, shard: int, start: int, stop: int) -> Iterator[Block]:
        rows = self.rows(shard)
        for first in range(start, stop, BLOCK_VECTORS):
            positions = np.arange(first, min(first + BLOCK_VECTORS, stop))
            copies = positions // len(rows)
            ids = self.database.chunk_starts[shard] + rows[positions % len(rows)]
            vectors = self._at(shard, rows, positions, first - start)
            yield vectors, ids + copies * len(self.database)

    def _at(self, shard: int, rows: np.ndarray, positions: np.ndarray, block: int) -> np.ndarray:
        """Vectors at positions of a shard: those of its rows, then those drawn around them."""
        chosen = rows[positions % max(1, len(rows))]
        vectors = self.embeddings[shard].vectors[chosen].astype(np.float32)
        is_drawn = positions >= len(rows)
        draw = np.random.default_rng([self.recipe.seed, shard, block])
        vectors[is_drawn] = _around(vectors[is_drawn], draw)
        return vectors


def _around(vectors: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Unit vectors around unit vectors (n, dim): a normal step of length `NOISE` on average."""
    step = draw.standard_normal(vectors.shape, dtype=np.float32)
    step *= NOISE / math.sqrt(vectors.shape[1])
    step += vectors
    return normalised(step)
