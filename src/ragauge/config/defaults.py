"""The meaning of short forms in a configuration: keys as names, sweeps, models made by a training."""

from __future__ import annotations

from typing import Any

from ragauge.config.sweeps import expanded
from ragauge.errors import UserError

SWEPT = ("methods", "pipelines")  # sections where an entry may stand for several
NAMED_BY_KEY = {  # section -> the field of an entry that defaults to its key
    "models": "source",
    "datasets": "dataset",
    "methods": "method",
    "pipelines": "schedule",
    "staleness": "database",
}


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """A configuration in full: `naive: {}` is the method naive, sweeps are written out, trained models have sources.

    Raises:
        UserError: a sweep over something other than a list; a model with both a training and a source.
    """
    data = _trained_models(data)
    data = {k: expanded(v, k) if k in SWEPT else v for k, v in data.items()}
    return {k: _named_by_key(v, NAMED_BY_KEY[k]) if k in NAMED_BY_KEY else v for k, v in data.items()}


def _trained_models(data: dict[str, Any]) -> dict[str, Any]:
    """The configuration with a source, the folder that their training leaves, for models that name a training."""
    models = data.get("models")
    if not isinstance(models, dict):
        return data
    filled = {label: _trained(label, entry, data) for label, entry in models.items()}
    return data | {"models": filled}


def _trained(label: str, entry: Any, data: dict[str, Any]) -> Any:
    """A model's entry with the source and the template that its training, if it names one, gives it."""
    if not isinstance(entry, dict) or entry.get("training") is None:
        return entry
    made = trained_source(data.get("run", ""), entry["training"])
    if entry.get("source", made) != made:
        raise UserError(f"models.{label}: has a training, whose result is its source; leave out one of the two")
    trainings = data.get("training")
    training = trainings.get(entry["training"]) if isinstance(trainings, dict) else None
    template = _template(training) if isinstance(training, dict) else None
    return {"template": template, **entry, "source": made}


def _template(training: dict[str, Any]) -> str | None:
    """How the prompts of a training are wrapped, if the configuration or the catalog says."""
    from ragauge.assets.catalog import entries

    catalogued = entries().get(str(training.get("model")))
    return training.get("template") or (catalogued.template if catalogued else None)


def trained_source(run: str, training: str) -> str:
    """The source of a model that a training of the run makes."""
    return f"path:results/{run}/models/{training}"


def _named_by_key(section: Any, key: str) -> Any:
    if not isinstance(section, dict):
        return section
    filled = {label: {} if entry is None else entry for label, entry in section.items()}
    return {label: {key: label, **entry} if isinstance(entry, dict) else entry for label, entry in filled.items()}
