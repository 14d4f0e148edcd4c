"""Metadata (.meta.json) of pipeline records: every option and file that they depend on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragauge import registry
from ragauge.io.files import text_sha256
from ragauge.io.jsonl import read_object
from ragauge.io.specifications import IndexFacts
from ragauge.pipelines.indexes.base.recipe import DEFAULT_TYPE
from ragauge.pipelines.indexes.base.types import read_recipe, recipe_class
from ragauge.pipelines.modes.base import Mode
from ragauge.pipelines.settings import PipelineSettings


class PipelineSpecification(BaseModel, extra="forbid", frozen=True):
    """Everything that the records of one pipeline depend on besides their sequences."""

    pipeline: PipelineSettings  # every key of the section `pipelines`, defaults resolved
    model: str  # label of the decoder
    database: str  # label of the chunk database
    index: IndexFacts | None = None  # null: the schedule queries no index
    source: str = ""  # name or source of the decoder
    dtype: str | None = None  # of the decoder; null: it has not run
    device: str | None = None  # of the decoder; null: it has not run
    seed: int = 0  # of random neighbours and weights
    model_sha256: str | None = None
    adapters_sha256: str | None = None  # hash of weights that were trained to read neighbours
    database_sha256: str | None = None
    evaluation_sha256: str | None = None  # of the evaluation set; null: the held-out text is read
    index_sha256: str | None = None  # hashes of the index, or of its parts
    code: str | None = None  # digest of the modules that generate

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings without labels and access, with files by their hashes."""
        settings = self.pipeline.recorded(timed=self.pipeline.task == "generate")
        facts = self.model_dump(exclude={"pipeline", "model", "database", "index", "source"})
        return settings | facts | {"model": self.source}

    @property
    def digest(self) -> str:
        return text_sha256(self.fingerprint)

    @property
    def mode(self) -> Mode:
        """The attention mode."""
        return self.pipeline.mode_class()

    @property
    def evaluation(self) -> str | None:
        """Label of the evaluation set that is read; None: the database's held-out text."""
        label = self.pipeline.evaluation
        return None if label == self.database else label

    @property
    def component_modules(self) -> list[str]:
        """The modules that records depend on and no import shows.

        They are those of schedule, mode and index type, found by name, and of timed records those
        of the service.
        """
        components = [("schedule", self.pipeline.schedule), ("mode", self.pipeline.mode)]
        if self.index and self.index.type in registry.names("index"):
            components.append(("index", self.index.type))
        service = ("client", "fanout", "server") if self.pipeline.task == "generate" else ()
        return [
            *(registry.module_name(kind, name) for kind, name in components),
            *(f"ragauge.pipelines.service.{name}" for name in service),
        ]


def specify_pipeline(
    settings: PipelineSettings, *, model: str, database: str, index: IndexFacts | None, **facts: Any
) -> PipelineSpecification:
    """Return the specification of a pipeline.

    Args:
        settings: as configured; a missing nprobe becomes the index's own.
        model: label of the decoder.
        database: label of the chunk database.
        index: what is searched, if the schedule queries an index.
        facts: further fields, as far as they are known.
    """
    labels: dict[str, Any] = {"model": model, "database": database}
    index = index if settings.queries_index else None
    nprobe = {"nprobe": index.nprobe} if index and settings.nprobe is None else {}
    return PipelineSpecification(
        pipeline=settings.model_copy(update=labels | nprobe), **labels, index=index, **facts
    )


def describe_index(label: str, recipe: Mapping[str, Any], vectors: int | None = None) -> IndexFacts:
    """Return the facts of an index by the keys of its recipe, as far as these are known."""
    kind = recipe.get("type", DEFAULT_TYPE)
    key = recipe_class(kind).NPROBE_KEY
    return IndexFacts(
        label=label,
        type=kind,
        settings={key: value for key, value in recipe.items() if key != "type"},
        vectors=vectors,
        filled=recipe.get("filled"),
        nprobe=recipe.get(key) if key else None,
    )


def read_index_facts(folder: Path, configured: IndexFacts | None = None) -> IndexFacts:
    """Return the facts of an index on disk.

    Args:
        folder: `<database>/indexes/<label>`.
        configured: the same index as the configuration has it; its nprobe, which does not rebuild
            the index, counts.

    Raises:
        UserError: there is no merged index.
    """
    manifest = read_object(folder / "merged" / "manifest.json")
    shards = len(list(folder.parent.parent.glob("embeddings/*/manifest.json")))  # of the database
    settings = read_recipe(manifest, shards).model_dump(exclude={"parts"})
    facts = describe_index(folder.name, settings, manifest["vectors"])
    if configured and configured.nprobe:
        return facts.model_copy(update={"nprobe": configured.nprobe})
    return facts
