"""Metadata (.meta.json) of pipeline records: every option and file that they depend on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ragauge import registry
from ragauge.io.files import text_sha256
from ragauge.io.jsonl import read_object
from ragauge.io.specifications import IndexFacts
from ragauge.pipelines.indexes import DEFAULT_TYPE, recipe_class, recipe_of
from ragauge.pipelines.modes import Mode
from ragauge.pipelines.modes import make as make_mode
from ragauge.pipelines.settings import PipelineSettings

# Keys that no record depends on: labels, access, and files that hashes stand for.
UNRECORDED = {
    *("model", "database", "index", "evaluation", "limit"),
    *("server_cert", "server_key", "tls_ca", "tls_name", "token_file"),
    *("retrofit_minutes", "weights", "adapters"),
}
TIMED = {"server", "server_threads", "cores", "retrieval_cores"}  # keys that change times alone


class PipelineSpecification(BaseModel, extra="forbid", frozen=True):
    """Everything that the records of one pipeline depend on besides their sequences."""

    pipeline: PipelineSettings = Field(
        description="every key of the section `pipelines`, defaults resolved"
    )
    model: str = Field(description="label of the decoder")
    database: str = Field(description="label of the chunk database")
    index: IndexFacts | None = Field(None, description="null: the schedule asks no index")
    source: str = Field("", description="name or source of the decoder")
    dtype: str | None = Field(None, description="of the decoder; null: it has not run")
    device: str | None = Field(None, description="of the decoder; null: it has not run")
    seed: int = Field(0, description="of random neighbours and weights")
    model_sha256: str | None = None
    adapters_sha256: str | None = Field(
        None, description="hash of weights that were trained to read neighbours"
    )
    database_sha256: str | None = None
    evaluation_sha256: str | None = Field(
        None, description="of the evaluation set; null: the held-out text is read"
    )
    index_sha256: str | None = Field(None, description="hashes of the index, or of its parts")
    code: str | None = Field(None, description="digest of the modules that generate")

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings without labels and access, with files by their hashes."""
        scores = self.pipeline.task == "perplexity"
        settings = self.pipeline.model_dump(exclude=UNRECORDED | (TIMED if scores else set()))
        others = self.model_dump(exclude={"pipeline", "model", "database", "index", "source"})
        return settings | others | {"model": self.source}

    @property
    def digest(self) -> str:
        return text_sha256(self.fingerprint)

    @property
    def mode(self) -> Mode:
        """The attention mode with its options."""
        return make_mode(self.pipeline.mode, self.pipeline.model_dump())


def modules_of(settings: PipelineSettings, index_type: str | None) -> list[str]:
    """The modules that records depend on and no import shows: schedule, mode and index type by
    name, as far as the last is known; of timed ones the service.
    """
    service = ("client", "fanout", "server") if settings.task == "generate" else ()
    named = [("schedule", settings.schedule), ("mode", settings.mode)]
    named += [("index", index_type)] if index_type in registry.names("index") else []
    return [registry.module_name(*one) for one in named] + [
        f"ragauge.pipelines.service.{name}" for name in service
    ]


def specify(
    settings: PipelineSettings, *, model: str, database: str, index: IndexFacts | None, **facts: Any
) -> PipelineSpecification:
    """The specification of a pipeline; `index`, of whose nprobe it may make use, and further fields
    as far as known.
    """
    labels: dict[str, Any] = {"model": model, "database": database}
    index = index if settings.asks_index else None
    nprobe = {"nprobe": index.nprobe} if index and settings.nprobe is None else {}
    return PipelineSpecification(
        pipeline=settings.model_copy(update=labels | nprobe), **labels, index=index, **facts
    )


def facts_of(label: str, recipe: Mapping[str, Any], vectors: int | None) -> IndexFacts:
    """The facts of an index by its recipe, as far as that is known; a recipe without a type is of
    IVF-PQ.
    """
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


def index_facts(folder: Path) -> IndexFacts:
    """The facts of an index on disk: `<database>/indexes/<label>`. Raises UserError: there is no
    merged index.
    """
    manifest = read_object(folder / "merged" / "manifest.json")
    settings = recipe_of(manifest).model_dump(exclude={"parts"})
    shards = len(list(folder.parent.parent.glob("embeddings/*/manifest.json")))  # of the database
    settings["shards"] = None if settings["shards"] == shards else settings["shards"]
    return facts_of(folder.name, settings, manifest["vectors"])
