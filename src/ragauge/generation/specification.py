"""What stands beside a pipeline's records of the options that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge.errors import UserError
from ragauge.generation.settings import PipelineSettings
from ragauge.io.specifications import IndexFacts, PipelineSpecification, ScheduleFacts
from ragauge.retrieval.indexes import DEFAULT_TYPE, recipe_class, recipe_of


def specify(
    settings: PipelineSettings,
    *,
    model: str,
    database: str,
    index: IndexFacts | None,
    engine: dict[str, Any],
    adapters_sha256: str | None = None,
) -> PipelineSpecification:
    """The specification of a pipeline.

    Args:
        model, database: their labels.
        index: the index that is asked; its default nprobe is used where the pipeline states none.
        engine: dtype, device, threads and cores; the engine's name is the pipeline's.
        adapters_sha256: hash of weights that were trained to read neighbours.
    """
    asked, found = index if settings.asks else None, {}
    if asked and settings.nprobe is None:
        found = {"nprobe": asked.nprobe}
    return PipelineSpecification(
        pipeline=settings.model_dump() | {"model": model, "database": database} | found,
        schedule=ScheduleFacts(**{fact: getattr(settings.kind, fact) for fact in ScheduleFacts.model_fields}),
        model=model,
        database=database,
        index=asked,
        adapters_sha256=adapters_sha256,
        engine={"name": settings.engine, **engine},
    )


def facts_of(label: str, recipe: Mapping[str, Any], vectors: int | None) -> IndexFacts:
    """What an index is by its recipe, as far as that is known; a recipe without a type is of IVF-PQ."""
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
    """What an index on disk is: `<database>/indexes/<label>`.

    Raises:
        UserError: no merged index lies there.
    """
    path = folder / "merged" / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        settings = recipe_of(manifest).model_dump(exclude={"parts"})
        whole = len(list(folder.parent.parent.glob("embeddings/*/manifest.json")))  # shards of the database
        settings["shards"] = None if settings["shards"] == whole else settings["shards"]
        return facts_of(folder.name, settings, manifest["vectors"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as the manifest of an index ({type(error).__name__})") from None
