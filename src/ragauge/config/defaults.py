"""The meaning of short forms in a configuration: keys as names, sweeps, models made by a training.

A label with keys in braces stands for several entries: `bm25_k{top_k}: {method: bm25, top_k: [1,
2]}` is the two entries `bm25_k1` and `bm25_k2`. Several keys are swept crosswise. Only keys that
the label names are swept: every other list is the value that it is.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from ragauge.errors import UserError, unknown

AFFECTS_RESULTS = False

SWEPT = ("methods", "pipelines")  # sections where an entry may stand for several
NAMED_BY_KEY = {  # section -> the field of an entry that defaults to its key
    "models": "source",
    "datasets": "dataset",
    "methods": "method",
    "pipelines": "schedule",
    "staleness": "database",
}
_KEY = re.compile(r"\{(\w*)\}")


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """A configuration in full: `naive: {}` is the method naive, sweeps are written out, trained
    models have sources.

    Raises:
        UserError: a sweep over something other than a list; a model with both a training and a
            source.
    """
    models = data.get("models")
    if isinstance(models, dict):
        data = data | {
            "models": {label: _trained(label, entry, data) for label, entry in models.items()}
        }
    data = {section: expanded(v, section) if section in SWEPT else v for section, v in data.items()}
    for name, key in NAMED_BY_KEY.items():
        section = data.get(name)
        if isinstance(section, dict):
            data[name] = {
                label: {key: label, **(entry or {})} if isinstance(entry, dict | None) else entry
                for label, entry in section.items()
            }
    return data


def _trained(label: str, entry: Any, data: dict[str, Any]) -> Any:
    """A model's entry with the folder that its training, if it names one, leaves."""
    if not isinstance(entry, dict) or entry.get("training") is None:
        return entry
    folder = f"path:results/{data.get('run', '')}/models/{entry['training']}"
    if entry.get("source", folder) != folder:
        raise UserError(
            f"models.{label}: has a training, whose result is its source; leave out one of the two"
        )
    return {**entry, "source": folder}


def expanded(section: Any, where: str) -> Any:
    """A section (`where`) of labelled entries with every sweep written out, in its order; anything
    else as it is.

    Raises:
        UserError: a swept key that the entry lacks or that has no list of plain values; a label
            twice.
    """
    if not isinstance(section, dict):
        return section
    entries_by_name = {}
    for label, entry in section.items():
        for name, values in _entries(label, entry, f"{where}.{label}"):
            if name in entries_by_name:
                raise UserError(f"{where}.{label}: there is an entry {name!r} already")
            entries_by_name[name] = values
    return entries_by_name


def _entries(label: Any, entry: Any, where: str) -> Iterator[tuple[Any, Any]]:
    """The label and the keys of each entry that one stands for."""
    swept = list(dict.fromkeys(_KEY.findall(label))) if isinstance(label, str) else []
    if not swept:
        yield label, entry
        return
    keys = entry if isinstance(entry, dict) else {}
    for key in swept:
        if key not in keys:
            raise unknown("key in braces", key, keys, where)
        values = keys[key]
        if (
            not isinstance(values, list)
            or not values
            or not all(isinstance(v, str | int | float) for v in values)
        ):
            raise UserError(
                f"{where}.{key}: must be a list of values, since the label names it in braces"
                f", not {values!r}"
            )
    for values in product(*(keys[key] for key in swept)):
        chosen = dict(zip(swept, values, strict=True))
        name = label
        for key, value in chosen.items():
            name = name.replace(
                f"{{{key}}}", str(value).lower() if isinstance(value, bool) else str(value)
            )
        yield name, {**entry, **chosen}
