"""Data sets made from their names and options, and their examples."""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

from ragauge import options as declared
from ragauge.datasets.base.dataset import Dataset, Example
from ragauge.errors import UserError


def make(name: str, *, seed: int = 0, **options: Any) -> Dataset:
    """Make a data set with these options.

    Raises:
        UserError: unknown name or option, or a value out of range.
    """
    named = {"seed": seed, **options}
    dataset: Dataset = declared.make("dataset", name, Dataset, f"dataset {name}", named)
    return dataset


def load(
    name: str, *, data: Path | None = None, limit: int | None = None, seed: int = 0, **options: Any
) -> list[Example]:
    """Load the first examples of a data set.

    Args:
        data: a file in its official format (.jsonl or .jsonl.gz); None: its own source.
        limit: the number of examples; None: all.
        seed: of its draws, such as the order of the documents.
        options: its fields.

    Raises:
        UserError: unknown name or option, or a record that cannot be asked.
    """
    if limit is not None and limit < 1:
        raise UserError(f"dataset {name}: limit must be at least 1, not {limit}")
    dataset = make(name, seed=seed, **options)
    path = dataset.official() if data is None else Path(data)
    examples = list(islice(dataset.read(path), limit and min(limit, sys.maxsize)))
    if not examples:
        raise UserError(f"{path}: holds no records")
    return examples
