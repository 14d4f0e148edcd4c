"""What the records of pipelines are of: as it stands beside them, or, where nothing does, as it can be told.

Records made before specifications were written have a fingerprint; they and pipelines that have not run are completed
from the configuration and the report of their index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ragauge.errors import UserError
from ragauge.generation import readers
from ragauge.generation.settings import PipelineSettings
from ragauge.generation.specification import facts_of, specify
from ragauge.io import records
from ragauge.io.jsonl import read_object
from ragauge.io.specifications import IndexFacts, PipelineSpecification
from ragauge.results.runs import Runs

UNNAMED = "held-out text"  # the database of older records whose label is not known
OTHER_VERSION = "specification of another version"
Model = TypeVar("Model", bound=BaseModel)
Found = Mapping[str, tuple[Path, Mapping[str, Any]]]  # file of records and metadata, by label
Labels = Mapping[str | None, str]  # of databases, by their hash


def of_records(runs: Runs, found: Found) -> Iterator[tuple[str, PipelineSpecification]]:
    """(label, specification) of pipelines with records.

    Raises:
        UserError: a specification of another version, or nothing says what the records are of.
    """
    older = {name: meta["fingerprint"] for name, (_, meta) in found.items() if _is_older(meta)}
    named = {told.get("database_sha256"): _database(runs, name, told) for name, told in older.items()}
    known = {sha256: label for sha256, label in named.items() if label}
    for name, (path, meta) in found.items():
        entry = runs.config.pipelines.get(name) if runs.config else None
        if "specification" in meta:
            yield name, _validated(PipelineSpecification, meta["specification"], path, OTHER_VERSION)
        elif name in older:
            yield name, converted(runs, name, path, meta, known)
        elif entry is not None:
            yield name, configured(runs, entry)
        else:
            raise UserError(f"{path}: cannot tell what made it: no .meta.json beside it, and no such pipeline")


def configured(runs: Runs, entry: PipelineSettings) -> PipelineSpecification:
    """The specification of a pipeline of the configuration; what runs it is not known before it has run."""
    assert runs.config is not None
    database = runs.config.pipeline_database(entry)
    index = index_facts(runs, database, entry.index) if entry.asks else None
    return specify(entry, model=runs.config.pipeline_model(entry), database=database, index=index, engine={})


def converted(runs: Runs, name: str, path: Path, meta: Mapping[str, Any], databases: Labels) -> PipelineSpecification:
    """The specification of records that were made before it was written beside them.

    Of weights that were read it has the hash in place of the file.

    Args:
        meta: their metadata, with the fingerprint of that time.
        databases: the only way to tell the database of those that ask no index and are not in the configuration.
    """
    told = meta["fingerprint"]
    schedule, form, trained = told["schedule"], told.get("form") or {}, told.get("adapters_sha256")
    if not isinstance(form, dict):
        raise UserError(f"{records.meta_path(path)}: not the settings of a pipeline: form: must be an object")
    entry = runs.config.pipelines.get(name) if runs.config else None
    minutes = entry.retrofit_minutes if entry and trained else None
    options = {
        "schedule": schedule.get("kind"),
        "neighbours": schedule.get("k"),
        "nprobe": "hide" if schedule.get("hide") else schedule.get("nprobe"),
        **{key: schedule.get(key) for key in ("interval", "exclude", "characters", "read_ahead")},
        "form": form.get("name"),
        "weights": told.get("model_sha256") if form.get("name") in readers.having("weights") else None,
        **{key: form.get(key) for key in ("reach", "bias")},
        "retrofit_minutes": minutes,
        "adapters": None if minutes else trained,
        **{key: told.get(key) for key in ("task", "engine", "tokens", "trials", "threads")},
    }
    made = settings({key: value for key, value in options.items() if value is not None}, path)
    database = _database(runs, name, told) or databases.get(str(told.get("database_sha256")), UNNAMED)
    place = _index_folder(told)
    index = index_facts(runs, database, place.name) if place else IndexFacts(label="server", type="server", settings={})
    model = runs.config.pipeline_model(entry) if runs.config and entry else _label(str(told.get("model") or ""))
    engine = {key: told.get(key) for key in ("dtype", "device", "threads")} | {"cores": meta.get("cores")}
    return specify(made, model=model, database=database, index=index, engine=engine, adapters_sha256=trained)


def settings(options: Mapping[str, Any], path: Path) -> PipelineSettings:
    """The settings of the pipeline whose records are at `path`.

    Raises:
        UserError: they are of another version.
    """
    return _validated(PipelineSettings, options, path, "not the settings of a pipeline")


def first_problem(error: ValidationError) -> str:
    """The first of what does not fit, in one line with its place."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return ": ".join(filter(None, (place, first["msg"].removeprefix("Value error, "))))


def index_facts(runs: Runs, database: str, label: str) -> IndexFacts:
    """An index by what `ragauge index recall` wrote of it, or by the configuration where there is no such file.

    Raises:
        UserError: the file cannot be read.
    """
    path = runs.folder / "databases" / database / "indexes" / label / "recall.json"
    report = read_object(path) if os.path.exists(path) else {}
    recipe = report.get("settings")
    if not isinstance(recipe, dict):
        entry = runs.config.databases.get(database) if runs.config else None
        given = entry.indexes.get(label) if entry else None
        recipe = given.model_dump() if given else {}
    return facts_of(label, recipe, report.get("vectors"))


def _validated(kind: type[Model], given: Any, path: Path, otherwise: str) -> Model:
    """What stands beside the records at `path`, as a model; UserError that begins with `otherwise` if it is none."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{records.meta_path(path)}: {otherwise}: {first_problem(error)}") from error


def _is_older(meta: Mapping[str, Any]) -> bool:
    return "specification" not in meta and isinstance((meta.get("fingerprint") or {}).get("schedule"), dict)


def _index_folder(told: Mapping[str, Any]) -> Path | None:
    """The folder of the index in a fingerprint: DATABASE/indexes/INDEX."""
    place = Path(str(told.get("index") or ""))
    return place if place.parent.name == "indexes" else None


def _database(runs: Runs, name: str, told: Mapping[str, Any]) -> str | None:
    """The label of the database in a fingerprint, from the index's folder or the configuration."""
    if place := _index_folder(told):
        return place.parent.parent.name
    entry = runs.config.pipelines.get(name) if runs.config else None
    return runs.config.pipeline_database(entry) if runs.config and entry else None


def _label(source: str) -> str:
    """The last part of a source such as hf:org/name."""
    return source.rpartition("/")[2].rpartition(":")[2]
