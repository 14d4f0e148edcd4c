"""Questions of a data set, each with its documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, overload

from ragauge import datasets, registry
from ragauge.datasets import Example
from ragauge.errors import explain_missing_extra
from ragauge.evaluation.inputs import Questions


@dataclass(frozen=True)
class Question(Example):
    """An example that knows its data set, whose instruction stands before its documents."""

    dataset: datasets.Dataset | None = None


class Dataset(Sequence[Question]):
    """The questions of a data set; `load_dataset` makes it."""

    def __init__(self, questions: Questions, limit: int | None = None) -> None:
        self.source = questions  # where they come from, as records say it
        self.examples = questions.examples(limit)

    @property
    def name(self) -> str:
        """Its registered name."""
        return self.source.name

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics, the primary one first."""
        return self.source.dataset.metrics

    @overload
    def __getitem__(self, at: int) -> Question: ...

    @overload
    def __getitem__(self, at: slice) -> list[Question]: ...

    def __getitem__(self, at: int | slice) -> Question | list[Question]:
        if isinstance(at, slice):
            return [self._question(example) for example in self.examples[at]]
        return self._question(self.examples[at])

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Question]:
        return map(self._question, self.examples)

    def __repr__(self) -> str:
        return f"<Dataset {self.name}: {len(self)} questions>"

    def _question(self, example: Example) -> Question:
        return Question(**{f.name: getattr(example, f.name) for f in fields(Example)}, dataset=self.source.dataset)


@explain_missing_extra()
def load_dataset(
    name: str, data: str | Path | None = None, limit: int | None = None, *, seed: int = 0, **options: Any
) -> Dataset:
    """The first questions of a data set.

    Args:
        name: one of `ragauge list datasets`.
        data: a file in its official format; None: the data set's own source, downloaded on first use.
        limit: how many questions, from the first; None: all.
        seed: of what the data set draws, such as the order of the documents.
        options: the data set's own.

    Raises:
        UserError: unknown name or option, an unreadable file, a record that cannot be asked.
    """
    registry.module_name("dataset", name, "load_dataset")
    return Dataset(Questions(name, {"seed": seed, **options}, Path(data) if data else None), limit)
