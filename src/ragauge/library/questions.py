"""Questions of a data set, each with its documents."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.datasets.base import dataset as datasets
from ragauge.datasets.base.dataset import Example
from ragauge.errors import explain_missing_extra
from ragauge.measure.inputs import QuestionSource


@dataclass(frozen=True)
class Question(Example):
    """An example that knows its data set, whose instruction stands before its documents."""

    dataset: datasets.Dataset | None = None


class Dataset(list[Question]):
    """The questions of a data set; `load_dataset` makes it."""

    def __init__(self, source: QuestionSource, limit: int | None = None) -> None:
        self.source = source  # of the questions, as records name it
        super().__init__(
            Question(**vars(example), dataset=source.dataset) for example in source.examples(limit)
        )

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics, the primary one first."""
        return self.source.dataset.metrics

    def __repr__(self) -> str:
        return f"<Dataset {self.name}: {len(self)} questions>"


@explain_missing_extra()
def load_dataset(
    name: str,
    data: str | Path | None = None,
    limit: int | None = None,
    *,
    seed: int = 0,
    **options: Any,
) -> Dataset:
    """Load the first questions of a data set.

    Args:
        name: one of `ragauge list datasets`.
        data: a file in its official format; None: the data set's own source, downloaded on first
            use.
        limit: how many questions, from the first; None: all.
        seed: of random choices, such as the order of the documents.
        options: the data set's own.

    Raises:
        UserError: unknown name or option, an unreadable file, a record that cannot be asked.
    """
    registry.module_name("dataset", name, "load_dataset")
    return Dataset(
        QuestionSource(name, {"seed": seed, **options}, Path(data) if data else None), limit
    )
