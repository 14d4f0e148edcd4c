"""Specifications of pipelines: from the metadata of their records, else from the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ragauge.errors import UserError
from ragauge.generation.settings import PipelineSettings
from ragauge.generation.specification import facts_of, specify
from ragauge.io import records
from ragauge.io.jsonl import read_object
from ragauge.io.specifications import IndexFacts, PipelineSpecification
from ragauge.results.runs import Runs

OTHER_VERSION = "specification of another version"
Model = TypeVar("Model", bound=BaseModel)
Found = Mapping[str, tuple[Path, Mapping[str, Any]]]  # file of records and metadata, by label


def of_records(runs: Runs, found: Found) -> Iterator[tuple[str, PipelineSpecification]]:
    """(label, specification) of pipelines with records.

    Raises:
        UserError: a specification of another version, or nothing says what the records are of.
    """
    for name, (path, meta) in found.items():
        entry = runs.config.pipelines.get(name) if runs.config else None
        if "specification" in meta:
            yield name, _validated(PipelineSpecification, meta["specification"], path, OTHER_VERSION)
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
