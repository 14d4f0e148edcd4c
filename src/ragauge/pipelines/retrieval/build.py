"""The steps that build a chunk database and its indexes, one at a time or all of them."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss

from ragauge.io import folders
from ragauge.pipelines.database import chunking, embed
from ragauge.pipelines.database.database import Database, EvaluationSet
from ragauge.pipelines.retrieval import index
from ragauge.pipelines.retrieval.index import Index
from ragauge.pipelines.retrieval.settings import DatabaseSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatabaseBuild:
    """A database that is built in a folder; every step skips what is there already."""

    folder: Path
    settings: DatabaseSettings
    threads: int | None = None  # of the encoder and of faiss; None: the libraries' own choice

    def run_all(self) -> None:
        """Run all steps, shard after shard, for every index."""
        shards = range(self.settings.shards)
        for shard in shards:
            self.run_step("chunks", shard)
        for label in self.settings.evaluation_sets:
            self.run_step("evaluation", label=label)
        for shard in shards:
            self.run_step("mark", shard)
        self.run_step("gather")
        for shard in shards:
            self.run_step("embed", shard)
        for label, recipe in self.settings.indexes.items():
            self.run_step("train", label=label)
            for shard in range(recipe.shards or self.settings.shards):
                self.run_step("add", shard, label)
            self.run_step("merge", label=label)

    def run_step(self, step: str, shard: int = 0, label: str = "") -> None:
        """Run one step, of a shard, and of an index or evaluation set by its label.

        Raises:
            UserError: an earlier step is missing, or something cannot be read or written.
        """
        folder = self.folder
        settings = self.settings
        sets = list(settings.evaluation_sets)
        recipe: Any = settings.indexes.get(label)  # of a step of an index
        if recipe and self.threads:
            faiss.omp_set_num_threads(self.threads)
        match step:
            case "chunks":
                is_new = chunking.build_shard(folder, settings, shard)
                result = f"chunks of shard {shard}"
            case "evaluation":
                is_new = chunking.build_evaluation_set(
                    folder, label, settings.evaluation_sets[label]
                )
                result = f"evaluation set {label}"
            case "mark":
                is_new = chunking.mark(folder, settings.shards, shard, sets)
                result = f"near-duplicates of shard {shard}"
            case "gather":
                is_new = chunking.gather(folder, settings.shards, sets)
                result = "gathered"
            case "embed":
                engine = "torch" if settings.device == "cuda" else settings.engine
                encoder = embed.EncoderChoice(
                    settings.encoder, engine, self.threads, settings.dtype, settings.device
                )
                is_new = embed.build_embeddings(folder, shard, encoder)
                result = f"embeddings of shard {shard}"
            case "train":
                is_new = index.train(folder, label, recipe)
                result = f"index {label}: trained"
            case "add":
                is_new = index.add(folder, label, recipe, shard)
                result = f"index {label}: shard {shard} added"
            case _:
                for number in range(recipe.parts if recipe.parts > 1 else 0):
                    index.merge(folder, label, recipe, (number, recipe.parts))
                is_new = index.merge(folder, label, recipe)
                result = f"index {label}: merged"
        logger.info("%s%s", result, "" if is_new else ": there already")
        if step == "gather":
            counts = Database(folder).counts
            logger.info("%s", ", ".join(f"{key} {value:,}" for key, value in counts.items()))

    def verify(self) -> dict[str, Any]:
        """Hash every file of the database and its indexes, and open them.

        Returns:
            The numbers of chunks, files and bytes, and the labels of the indexes.

        Raises:
            UserError: a file is damaged.
        """
        files, size = folders.verify(self.folder)  # before faiss reads sizes that a file states
        database = Database(self.folder)
        for label in self.settings.evaluation_sets:
            EvaluationSet(self.folder, label)
        for label in self.settings.indexes:
            Index(database, label)
        indexes = list(self.settings.indexes)
        return {"chunks": len(database), "indexes": indexes, "files": files, "bytes": size}
