"""Data sets: one file a data set, each turning its official format into Examples."""

from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from ragauge import registry
from ragauge.datasets.base.dataset import (
    SEARCH_RESULTS,
    Dataset,
    Document,
    Example,
    Fold,
    Stretch,
    check,
)
from ragauge.datasets.base.examples import read_examples, write_examples
from ragauge.errors import UserError, unknown

__all__ = ["SEARCH_RESULTS", "Dataset", "Document", "Example", "Stretch", "check", "load", "make"]
__all__ += ["read_examples", "write_examples"]


def make(name: str, *, seed: int = 0, **options: Any) -> Dataset:
    """The data set of a name with its options set; UserError if there is no such one, or a value is
    out of range.
    """
    kind = registry.component("dataset", name, Dataset)
    known = [f.name for f in fields(kind)]
    for option in options:
        if option not in known:
            raise unknown("option", option, known, where=f"dataset {name}")
    if options.get("fold", "all") not in get_args(Fold):
        raise unknown("fold", str(options["fold"]), get_args(Fold), where=f"dataset {name}")
    return kind(seed=seed, **options)


def load(
    name: str, *, data: Path | None = None, limit: int | None = None, seed: int = 0, **options: Any
) -> list[Example]:
    """The first `limit` examples of a data set (all where None), with its own fields as options.
    `data` is a file in its official format (.jsonl or .jsonl.gz), by default its own source; `seed`
    that of its draws, such as the order of the documents. Raises UserError on an unknown name or
    option, or a record that cannot be asked.
    """
    if limit is not None and limit < 1:
        raise UserError(f"dataset {name}: limit must be at least 1, not {limit}")
    dataset = make(name, seed=seed, **options)
    path = dataset.official() if data is None else Path(data)
    examples = list(islice(dataset.read(path), limit))
    if not examples:
        raise UserError(f"{path}: holds no records")
    return examples
