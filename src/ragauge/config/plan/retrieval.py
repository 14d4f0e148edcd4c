"""Jobs of chunk databases, of their indexes, and of what stale queries find in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import glob
from typing import Any

from ragauge import registry
from ragauge.config.plan.part import Labels, PlanPart, code_of, manifest
from ragauge.retrieval.corpus import is_asset
from ragauge.retrieval.indexes import IndexRecipe
from ragauge.retrieval.settings import DatabaseSettings, EvaluationSetSettings, StalenessSettings


class RetrievalPlan(PlanPart):
    """Labels: database, evaluation set, index, shard (five digits); staleness."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        for database in self.config.databases.values():
            yield database.tokenizer
            sources = [*database.sources, *(s for one in database.evaluation_sets.values() for s in one.sources)]
            yield from (source for source in sources if is_asset(source))
        yield from self.encoders()

    def encoders(self) -> set[str]:
        """The text encoders of the databases and of the comparisons of stale queries: names, or sources."""
        databases = {database.encoder for database in self.config.databases.values()}
        return databases | {compared.encoder for compared in self.config.staleness.values()}

    # --- databases ---

    def folder(self, labels: Labels) -> str:
        return self.paths.database.format(database=labels.database)

    def corpus(self, labels: Labels) -> list[str]:
        """The corpus's files, and of catalogued ones the manifests; a data set of the hub is read as it streams."""
        return _files(self._database(labels).sources)

    def tokenizer(self, labels: Labels) -> str:
        return manifest(self._database(labels).tokenizer)

    def encoder(self, labels: Labels) -> str:
        return manifest(self._database(labels).encoder)

    def settings(self, labels: Labels) -> dict[str, Any]:
        """What the chunks depend on; encoder and indexes are parameters of rules of their own."""
        return self._database(labels).model_dump(exclude={"encoder", "engine", "evaluation_sets", "indexes"})

    def encoder_settings(self, labels: Labels) -> list[str]:
        return [self._database(labels).encoder, self._database(labels).engine]

    def shard(self, labels: Labels) -> int:
        return int(labels.shard)

    def shards(self, labels: Labels) -> list[str]:
        return self._of_shards(self.paths.shard, self._database(labels).shards, labels)

    def marked(self, labels: Labels) -> list[str]:
        return self._of_shards(self.paths.marked, self._database(labels).shards, labels)

    # --- evaluation sets ---

    def evaluation_corpus(self, labels: Labels) -> list[str]:
        """As `corpus`, of an evaluation set."""
        return _files(self._evaluation_set(labels).sources)

    def evaluation_settings(self, labels: Labels) -> dict[str, Any]:
        return self._evaluation_set(labels).model_dump()

    def evaluation_sets(self, labels: Labels) -> list[str]:
        """All of a database, whose near-duplicates are marked in it."""
        sets = self._database(labels).evaluation_sets
        return [self.paths.evaluation_set.format(database=labels.database, evaluation=label) for label in sets]

    # --- indexes ---

    def index_settings(self, labels: Labels) -> dict[str, Any]:
        return self._index(labels).model_dump()

    def embeddings(self, labels: Labels) -> list[str]:
        """Of the shards that an index is over."""
        return self._of_shards(self.paths.embeddings, self._indexed_shards(labels), labels)

    def codes(self, labels: Labels) -> list[str]:
        """Of the shards that an index is over."""
        return self._of_shards(self.paths.codes, self._indexed_shards(labels), labels)

    def parts(self, labels: Labels) -> list[str]:
        """The numbers I/N of an index's parts, where servers share it."""
        count = self._index(labels).parts
        return [f"{number}/{count}" for number in range(count)] if count > 1 else []

    def index_code(self, labels: Labels) -> str:
        """Of an index's steps; its type is found by name, so no import leads to it."""
        return code_of("retrieval.index", components=[registry.module_name("index", self._index(labels).type)])

    def train_mb(self, labels: Labels, attempt: int) -> int:
        """Memory of the training; more in a further attempt."""
        return attempt * self._index(labels).train_mb()

    def add_mb(self, labels: Labels, attempt: int) -> int:
        """Memory for one shard, as far as its vectors are known beforehand; more in a further attempt."""
        index = self._index(labels)
        return attempt * index.add_mb((index.filled or 0) // self._indexed_shards(labels))

    def recall_files(self) -> list[str]:
        """The recall of every index whose database holds text out to measure it with."""
        return [
            self.paths.recall.format(database=label, index=index)
            for label, database in self.config.databases.items()
            if database.evaluation != "none"
            for index in database.indexes
        ]

    # --- stale queries ---

    def staleness_files(self) -> list[str]:
        return [self.paths.staleness.format(staleness=label) for label in self.config.staleness]

    def staleness_folder(self, labels: Labels) -> str:
        return self.paths.database.format(database=self._staleness(labels).database)

    def staleness_index(self, labels: Labels) -> str:
        compared = self._staleness(labels)
        return self.paths.merged.format(database=compared.database, index=compared.index)

    def staleness_encoder(self, labels: Labels) -> str:
        return manifest(self._staleness(labels).encoder)

    def staleness_settings(self, labels: Labels) -> dict[str, Any]:
        return self._staleness(labels).model_dump()

    # --- small print ---

    def _database(self, labels: Labels) -> DatabaseSettings:
        return self.config.databases[labels.database]

    def _evaluation_set(self, labels: Labels) -> EvaluationSetSettings:
        return self._database(labels).evaluation_sets[labels.evaluation]

    def _index(self, labels: Labels) -> IndexRecipe:
        return self._database(labels).indexes[labels.index]

    def _staleness(self, labels: Labels) -> StalenessSettings:
        return self.config.staleness[labels.staleness]

    def _indexed_shards(self, labels: Labels) -> int:
        return self._index(labels).shards or self._database(labels).shards

    def _of_shards(self, path: str, count: int, labels: Labels) -> list[str]:
        """The path of each of the first shards."""
        place = {"database": labels.database, "index": getattr(labels, "index", "")}
        return [path.format(**place, shard=f"{shard:05d}") for shard in range(count)]


def _files(sources: Sequence[str]) -> list[str]:
    """The manifests of catalogued corpora, then local files; a data set of the hub is read as it streams."""
    named = [manifest(source) for source in sources if is_asset(source)]
    return named + [path for source in sources for path in sorted(glob(source))]
