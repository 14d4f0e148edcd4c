"""Data sets made from their names and options, and their examples."""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

from ragauge import options as declared
from ragauge.datasets.base.dataset import Dataset, Example, reordered
from ragauge.errors import UserError
from ragauge.io.rankings import read_rankings


def make(name: str, *, seed: int = 0, **options: Any) -> Dataset:
    """Make a data set with these options.

    Raises:
        UserError: unknown name or option, or a value out of range.
    """
    named = {"seed": seed, **options}
    return declared.make("dataset", name, Dataset, f"dataset {name}", named)


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
        UserError: unknown name or option, a record that cannot be asked, or documents that the
            file of option `retrieved` does not rank.
    """
    if limit is not None and limit < 1:
        raise UserError(f"dataset {name}: limit must be at least 1, not {limit}")
    dataset = make(name, seed=seed, **options)
    path = dataset.official() if data is None else Path(data)
    examples = list(islice(dataset.read(path), limit and min(limit, sys.maxsize)))
    if not examples:
        raise UserError(f"{path}: holds no records")
    return _by_rank(examples, Path(dataset.retrieved)) if dataset.retrieved else examples


def _by_rank(examples: list[Example], path: Path) -> list[Example]:
    """Return the examples with their documents as a file ranks them, the others behind."""
    names = {name: example.key for example in examples for name in (example.key, example.question)}
    numbers = {
        example.key: {str(n): n for n in range(len(example.documents))} for example in examples
    }
    ranked = read_rankings(path, names, numbers, skip_others=True)
    for key, order in ranked.items():
        if not order:
            raise UserError(f"{path}: ranks no document of the question {key!r}")
        order += [n for n in numbers[key].values() if n not in order]
    return [reordered(example, ranked[example.key]) for example in examples]
