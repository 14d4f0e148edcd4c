"""Jobs of chunk databases, of their indexes, and of what stale queries find in them."""

from collections.abc import Callable, Iterator, Sequence
from glob import glob
from math import ceil
from typing import Any, ClassVar

from ragauge import registry
from ragauge.config.code import code_of
from ragauge.config.plan.contents import contents
from ragauge.config.plan.part import ALONE, Labels, PlanPart, manifest
from ragauge.pipelines.database.corpus import is_asset
from ragauge.pipelines.indexes.base.recipe import IndexRecipe
from ragauge.pipelines.retrieval import sizes
from ragauge.pipelines.retrieval.settings import DatabaseSettings

# of a comparison of stale queries, for what it reads, and for the text at which time is over
LOADING_MINUTES = 120
FEW_VECTORS = 100_000  # an index of them is trained in seconds
SEARCH_MB = 4000  # of a job that searches an index, besides the index


class RetrievalPlan(PlanPart):
    """Labels: database, evaluation set, index, shard (five digits); staleness."""

    EMBEDDING: ClassVar = {"encoder", "engine", "device", "dtype"}  # keys that embeddings depend on

    def sources(self) -> Iterator[str]:
        for database in self.config.databases.values():
            yield from (database.tokenizer, database.encoder)
        yield from filter(is_asset, self.config.corpora())
        yield from (compared.encoder for compared in self.config.staleness.values())

    def label_options(self, labels: Labels) -> list[str]:
        """Return the labels of a job of a database as options of `ragauge index`."""
        return [
            f"--{name}={labels.get(name)}"
            for name in ("evaluation", "index", "shard")
            if labels.get(name)
        ]

    def corpus(self, labels: Labels) -> list[str]:
        """Return the corpus's files, and of catalogued ones the manifests; a data set of the hub is
        read as it streams.
        """
        return corpus_files(self._database(labels).sources)

    def shard_files(self, pattern: str) -> Callable[[Labels], list[str]]:
        """Return a file of each shard: of those that an index is over, where the job has one; else
        of all.
        """

        def paths(labels: Labels) -> list[str]:
            index = getattr(labels, "index", None)  # no text where Snakemake's labels have none
            count = (
                self._indexed_shards(labels)
                if isinstance(index, str)
                else self._database(labels).shards
            )
            names = {"database": labels.database, "index": index}
            return [pattern.format(**names, shard=f"{shard:05d}") for shard in range(count)]

        return paths

    def evaluation_corpus(self, labels: Labels) -> list[str]:
        return corpus_files(self._database(labels).evaluation_sets[labels.evaluation].sources)

    def chunk_settings(self, labels: Labels) -> dict[str, Any]:
        """Return what the chunks of a database depend on, its corpus's contents included."""
        database = self._database(labels)
        keys = database.model_dump(exclude={*self.EMBEDDING, "evaluation_sets", "indexes"})
        return {**keys, "contents": contents(local_files(database.sources))}

    def evaluation_settings(self, labels: Labels) -> dict[str, Any]:
        """Return what the chunks of an evaluation set depend on, its corpus's contents included."""
        chosen = self._database(labels).evaluation_sets[labels.evaluation]
        return {**chosen.model_dump(), "contents": contents(local_files(chosen.sources))}

    def embed_gpus(self, labels: Labels) -> int:
        return int(self._database(labels).device == "cuda")

    def evaluation_sets(self, labels: Labels) -> list[str]:
        """Return all of a database, whose near-duplicates are marked in it."""
        sets = self._database(labels).evaluation_sets
        return [
            self.paths.evaluation_set.format(database=labels.database, evaluation=label)
            for label in sets
        ]

    def index_code(self, labels: Labels) -> str:
        """Of an index's steps; its type is found by name, so no import leads to it."""
        return code_of(
            "pipelines.retrieval.index",
            components=[registry.module_name("index", self._index(labels).type)],
        )

    def train_threads(self, labels: Labels) -> int:
        """Return all cores for many vectors; for few, one, beside other jobs.

        An unknown number counts as many.
        """
        return self.cores if self.train_node(labels) else 1

    def train_node(self, labels: Labels) -> str:
        """Slurm's option for the node that many vectors take."""
        return (
            ""
            if 0 < sizes.index_vectors(self._database(labels), labels.index) <= FEW_VECTORS
            else ALONE
        )

    def train_mb(self, labels: Labels, attempt: int) -> int:
        return attempt * self._index(labels).train_mb(sizes.width(self._database(labels)))

    def add_mb(self, labels: Labels, attempt: int) -> int:
        """Memory for one shard, as far as its vectors are known beforehand; more in a further
        attempt.
        """
        database = self._database(labels)
        each = ceil(sizes.index_vectors(database, labels.index) / self._indexed_shards(labels))
        return attempt * self._index(labels).add_mb(each, sizes.width(database))

    def search_mb(self, labels: Labels, attempt: int) -> int:
        """Memory of a job that searches an index, which it maps, all of it."""
        staleness = getattr(labels, "staleness", None)
        entry = self.config.staleness[staleness] if staleness else labels
        return (
            sizes.index_mb(self.config.databases[entry.database], entry.index) + attempt * SEARCH_MB
        )

    def staleness_runtime(self, labels: Labels) -> int:
        """Minutes: a comparison ends in time, whatever texts it has compared by then."""
        return ceil(self.config.staleness[labels.staleness].minutes) + LOADING_MINUTES

    def recall_files(self) -> list[str]:
        """Return the recall of every index whose database holds text out to measure it with."""
        return [
            self.paths.recall.format(database=label, index=index)
            for label, database in self.config.databases.items()
            if database.evaluation != "none"
            for index in database.indexes
        ]

    def staleness_files(self) -> list[str]:
        return [self.paths.staleness.format(staleness=label) for label in self.config.staleness]

    def _database(self, labels: Labels) -> DatabaseSettings:
        return self.config.databases[labels.database]

    def _index(self, labels: Labels) -> IndexRecipe:
        return self._database(labels).indexes[labels.index]

    def _indexed_shards(self, labels: Labels) -> int:
        return self._index(labels).shards or self._database(labels).shards


def corpus_files(sources: Sequence[str]) -> list[str]:
    """Return the manifests of catalogued corpora, then local files; a data set of the hub is read
    as it streams.
    """
    named = [manifest(source) for source in sources if is_asset(source)]
    return named + local_files(sources)


def local_files(sources: Sequence[str]) -> list[str]:
    """Return the files of corpora on this machine's disks, which may be written anew."""
    return [path for source in sources for path in sorted(glob(source))]
